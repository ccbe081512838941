"""The GraphQL schema of a role: its types and root fields, each made when it is first looked up."""
