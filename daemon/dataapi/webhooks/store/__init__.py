"""What is kept of webhooks in PostgreSQL: endpoints, events, due work, history, and who may do what."""
