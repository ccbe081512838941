"""What messages to clients say of values: JSON, where Python's own words would stand."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

_LONGEST_TEXT, _MOST_MEMBERS, _DEEPEST = 100, 5, 2
_CUT = "…"
_PYTHON_ERROR = re.compile(", but encountered error '.*'; found: ", re.DOTALL)


def without_python(message: str) -> str:
    """Return a message of graphql-core's about a literal without words of Python's."""
    message = _PYTHON_ERROR.sub(", found: ", message)
    return f"{message.removesuffix('None.')}null." if message.endswith("not to be None.") else message


def shown(value: Any, depth: int = 0) -> str:
    """Return a value as JSON, shortened where it is long or deep."""
    if isinstance(value, str):
        return json.dumps(_cut(value), ensure_ascii=False)
    if not value or not isinstance(value, dict | list):
        return _cut(json.dumps(value))
    begin, end = "{}" if isinstance(value, dict) else "[]"
    if depth == _DEEPEST:
        return begin + _CUT + end
    items = islice(value, _MOST_MEMBERS)
    if isinstance(value, dict):
        parts = [f"{shown(name)}: {shown(value[name], depth + 1)}" for name in items]
    else:
        parts = [shown(item, depth + 1) for item in items]
    if len(value) > _MOST_MEMBERS:
        parts.append(_CUT)
    return f"{begin}{', '.join(parts)}{end}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + _CUT
