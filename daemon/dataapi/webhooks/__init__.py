"""Webhooks: publishing, queueing, signing and delivery of events."""
