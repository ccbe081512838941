"""Descriptions of the REST API in OpenAPI: version 2.0 as PostgREST's clients know it, and version 3.1."""
