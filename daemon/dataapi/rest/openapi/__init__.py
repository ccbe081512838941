"""Descriptions of the REST API: one document in OpenAPI 3.1, and OpenAPI 2.0 derived from it."""
