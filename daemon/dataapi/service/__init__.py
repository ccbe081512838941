"""The running daemon: one ordered root service, its parts, and worker processes."""
