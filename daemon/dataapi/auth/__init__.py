"""Authentication with API keys and JWTs, and transactions in the caller's role."""
