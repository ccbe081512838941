"""Names and texts of the catalog as SQL; the only place where anything is quoted into a statement."""

from __future__ import annotations

import re

LONGEST_IDENTIFIER = 63
"""Bytes of a name; PostgreSQL cuts longer ones."""

ALIAS = "t~"
"""What the aliases of generated statements begin with, followed by a number."""

_ALIASED = re.compile(f"{ALIAS}[0-9]+[.]", re.ASCII)


def quote_identifier(name: str) -> str:
    """Quote a name so that SQL takes it as it is."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Return text of the catalog as an SQL string literal, whatever ``standard_conforming_strings`` is."""
    quoted = text.replace("'", "''")
    if "\\" in quoted:
        return " E'" + quoted.replace("\\", "\\\\") + "'"
    return "'" + quoted + "'"


def without_aliases(message: str) -> str:
    """Return a message of PostgreSQL's with the columns that it names not qualified by an alias."""
    return _ALIASED.sub("", message)
