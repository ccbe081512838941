"""The GraphQL schema of a role. Types and root fields are created on first use."""
