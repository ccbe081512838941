"""A daemon that serves a PostgreSQL database as GraphQL, REST and signed webhooks."""
