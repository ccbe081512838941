"""Delivery: claiming, attempts, and recording of outcomes."""
