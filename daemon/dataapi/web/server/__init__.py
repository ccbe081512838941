"""The HTTP server: connections, requests and responses, parsed with llhttp and limited in size and time."""
