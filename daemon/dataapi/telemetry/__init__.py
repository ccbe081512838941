"""What operators see of the daemon: logs, metrics and whether it is ready."""
