"""Webhooks: signed notifications about organizations and projects, from publishing to delivery."""
