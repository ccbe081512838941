"""Constants of the management API that the server needs before a request reaches the API."""

PORTAL = "/portal"

MAX_READ = 1_048_576
"""Maximum size of a request that publishes events, in bytes.

Other operations have a lower limit. The server still reads bodies up to this size, so that
authorization errors are reported first.
"""
