"""Defaults of functions' arguments that are plain values, which the schema can show."""

from __future__ import annotations

import re

from graphql import GraphQLDefaultInput

from dataapi.graphql.wire import Wire

_QUOTED = re.compile(r"'((?:[^']|'')*)'(::[\w\" .]+)?")
_NUMBER = re.compile(r"\(?(-?[0-9]+(?:\.[0-9]+)?)\)?(::[\w ]+)?")
_NUMBERS = {"Int": int, "Float": float}


def shown_default(sql: str | None, wire: Wire) -> GraphQLDefaultInput | None:
    """Return the default that an argument shows, None for an expression or a type without a plain form.

    An argument whose default is not shown is optional all the same (reference/graphql.md 1.4).

    :param sql: the default as PostgreSQL writes it, such as ``'a, b'::text``.
    """
    value = None if sql is None or wire.is_list else _value(sql, wire.kind)
    return None if value is None else GraphQLDefaultInput(value=value)


def _value(sql: str, kind: str) -> object:
    quoted = _QUOTED.fullmatch(sql)
    text = None if quoted is None else quoted[1].replace("''", "'")
    if kind == "String":
        return text
    if kind == "Boolean":
        return {"true": True, "false": False}.get(sql)
    number = _NUMBER.fullmatch(sql if text is None else text)
    if number is None or kind not in _NUMBERS or (kind == "Int" and "." in number[1]):
        return None
    return _NUMBERS[kind](number[1])
