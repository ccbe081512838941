"""The management API for endpoints, deliveries, event types and publishing."""
