"""Work that waits, repeats or ends: back-off, single flight, deadlines, wait queues and threads."""
