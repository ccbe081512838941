"""Authentication: API keys, tokens, the caller's role and settings, and transactions in that role."""
