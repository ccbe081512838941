"""Functions below ``/rpc/``: which one is meant, with what, and what it gives; pure."""
