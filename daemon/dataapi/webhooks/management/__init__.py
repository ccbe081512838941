"""The management API of webhooks: endpoints, deliveries, tests, retries, event types, publishing."""
