"""Plans REST requests against the catalog of one role; pure."""
