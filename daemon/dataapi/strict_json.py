"""JSON as RFC 8259 has it, which Python's reader is more lenient than; pure."""

from __future__ import annotations

from typing import NoReturn

NO_JSON = (ValueError, RecursionError)
"""What reading raises: for a text that is none, and for one that is nested more deeply than Python reads."""


class NoValue(ValueError):
    """A word that is no JSON value; the text says so."""


def no_constant(name: str) -> NoReturn:
    """Refuse ``NaN``, ``Infinity`` and ``-Infinity``, as the ``parse_constant`` of a reader.

    :raises NoValue: always.
    """
    raise NoValue(f"{name} is no JSON value")
