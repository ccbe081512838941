"""Timeouts that do not depend on the speed of the machine."""

FOR_EVER = 3600.0
"""Seconds that exceed every test's time limit."""
