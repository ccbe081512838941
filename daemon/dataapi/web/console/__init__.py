"""The console at ``/console``: who may open it, its files, and what it is told (docs/console.md)."""
