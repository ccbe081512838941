"""The HTTP server on twisted.web, whose private attributes are used here alone."""
