"""The database's schema: tables, functions, roles, privileges, directives and GraphQL names."""
