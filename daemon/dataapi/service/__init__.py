"""The daemon's processes: assembly, start and stop, sockets, workers and configuration."""
