"""The console at ``/console``: who may open it, its files, and its data (docs/console.md)."""
