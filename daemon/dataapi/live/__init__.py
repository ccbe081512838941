"""Live queries: an answer is sent again whenever it has changed, as server-sent events."""
