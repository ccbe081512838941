"""Constants of the management API that the server needs before a request reaches it."""

PORTAL = "/portal"

MAX_READ = 1_048_576
"""Maximum size of a request that publishes events, in bytes.

Other operations have a lower limit, but bodies up to this size are read, so that errors found before the body
is checked are reported first.
"""
