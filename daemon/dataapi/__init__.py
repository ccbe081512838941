"""A daemon that serves a PostgreSQL database as GraphQL and REST APIs."""
