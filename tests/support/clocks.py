"""Time that does not depend on how fast the machine is."""

FOR_EVER = 3600.0
"""More seconds than a test may take: what waits so long hangs."""
