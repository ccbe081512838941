"""OpenAPI descriptions of the REST API: a 3.1 document, and a 2.0 document derived from it."""
