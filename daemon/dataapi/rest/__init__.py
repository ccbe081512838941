"""The REST API: requests in PostgREST's dialect, and their answers."""
