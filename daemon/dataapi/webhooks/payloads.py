"""Reads payloads as the database has them: whoever publishes by SQL may write what Python's JSON cannot."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def read_payload(text: str) -> dict[str, Any]:
    """Return a payload that the database wrote.

    A number too large for Python to read or to write comes as the text of its digits.

    :raises RecursionError: it is nested very deep.
    """
    found: dict[str, Any] = json.loads(text, parse_int=_whole, parse_float=_fraction)
    return found


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= sys.int_info.default_max_str_digits else digits


def _fraction(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits
