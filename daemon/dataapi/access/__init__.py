"""Who is calling: project API keys, bearer tokens, and what SQL is told about the request."""
