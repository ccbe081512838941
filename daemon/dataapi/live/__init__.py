"""Live queries: results that are sent again as server-sent events whenever they change."""
