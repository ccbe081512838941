"""Timeouts that do not depend on the speed of the machine."""

FOR_EVER = 3600.0
"""A number of seconds longer than any test's time limit."""
