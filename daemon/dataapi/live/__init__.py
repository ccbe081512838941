"""Live queries: results that are sent to subscribers whenever they change."""
