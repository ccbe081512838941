"""The process: its parts assembled, started and stopped in order, its sockets, workers and configuration."""
