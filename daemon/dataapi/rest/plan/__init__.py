"""Planning of REST requests against the catalog of one role."""
