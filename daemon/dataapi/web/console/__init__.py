"""The console at ``/console``: access rules, files and data (docs/console.md)."""
