"""Delivery: claims what is due, makes the attempts and records their outcomes."""
