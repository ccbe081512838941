"""The process: assembly of its parts, start and stop, sockets, workers and configuration."""
