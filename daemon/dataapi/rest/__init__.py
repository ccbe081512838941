"""The REST API, compatible with PostgREST."""
