"""Timers, background tasks, shared calls, wait queues, caches and worker threads."""
