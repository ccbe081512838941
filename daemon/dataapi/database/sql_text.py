"""The text of SQL: quoted names, literals of the catalog, and the slots of statements.

No value of a request is ever part of it, so that a text is made once and used for every caller.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")

LONGEST_IDENTIFIER = 63
"""Bytes of a name; PostgreSQL cuts longer ones."""

ERROR_MARKER = f"~dataapi-{os.urandom(8).hex()}~"
"""Begins the values whose errors our statements raise on purpose.

Each process has its own, so that no stored or sent value can look like one.
"""

ALIAS = "t~"
"""The beginning of the aliases of generated statements, followed by a number."""

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


OWN_SCHEMA = "pg_catalog"
"""The schema of PostgreSQL's own objects."""


def operator_sql(operator: str, schema: str = OWN_SCHEMA) -> str:
    """Return an operator by its schema.

    PostgreSQL takes the operator (and the function) whose argument types fit best from all schemas
    of the search path, so that a role that may create one there could have other roles run it.
    """
    return f"operator({schema if schema == OWN_SCHEMA else quote_identifier(schema)}.{operator})"


# PostgreSQL writes its syntax in capitals, and the names of its types behind ``::``.
_WRITTEN = re.compile(
    r"""
      E'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*'
    | (?P<keyword>(?<![.])"(?:[^"]|"")*"(?=[(])) | "(?:[^"]|"")*"
    | ::\s*[a-z_][a-z0-9_]*(?:[ ][a-z][a-z0-9_]*)*
    | [.]\s*[^\s"(]+
    | (?P<function>[a-z_][a-z0-9_]*(?=[(]))
    | \w+
    | (?P<operator>[-+*/<>=~!@#%^&|`?]+)
    """,
    re.VERBOSE | re.DOTALL,
)


def with_own_schema(expression: str) -> str:
    """Return an expression as PostgreSQL writes it, naming the schema of PostgreSQL's own objects.

    :param expression: was written for a search path that leads only to PostgreSQL's own objects, so that
        those of all others have their schemas.
    """

    def name(match: re.Match[str]) -> str:
        if match["function"] or match["keyword"]:
            return f"{OWN_SCHEMA}.{match[0]}"
        return operator_sql(match[0]) if match["operator"] else match[0]

    return _WRITTEN.sub(name, expression)


EQUAL, UNEQUAL, GREATER = operator_sql("="), operator_sql("<>"), operator_sql(">")
PLUS, MINUS, CONCATENATE = operator_sql("+"), operator_sql("-"), operator_sql("||")


def without_aliases(message: str) -> str:
    """Return a message of PostgreSQL's with the columns that it names not qualified by an alias."""
    return _ALIASED.sub("", message)


_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*")
# The identity just taken on, the promises of a message, and the encoding that answers are read in.
_OURS = frozenset({"role", "session_authorization", "transaction_read_only", "client_encoding"})
# Strings, quoted names, dollar quotes, comments and names come first: a ``$1`` in them is not a slot.
_TOKEN = re.compile(
    r"""
      [eE]'(?:[^'\\]|''|\\.)*'
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
    | --[^\n]*
    | /\*.*?\*/
    | [^\W\d][\w$]*
    | \$(?P<slot>[1-9][0-9]*)
    | ;
    """,
    re.VERBOSE | re.DOTALL,
)


REQUEST = "request."
"""The beginning of the names of settings that describe the request to SQL."""

CURSOR = "dataapi_rows"
"""The one cursor of a transaction that reads its rows piece by piece."""

ISOLATION_LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
"""From the weakest to the strictest."""


@dataclass(frozen=True, slots=True)
class Template:
    """A statement with the slots that it has numbered from ``$1`` on, as PostgreSQL takes no others.

    :ivar order: for each slot the index of its value.
    """

    text: str
    order: tuple[int, ...]

    def arrange(self, values: list[_T]) -> list[_T]:
        """Return the values in the order of the slots."""
        in_order = self.order == tuple(range(len(values)))
        return values if in_order else [values[index] for index in self.order]


def may_travel(name: str) -> bool:
    """Whether a setting of this name may be made for a caller's transaction."""
    return _SETTING.fullmatch(name) is not None and name.lower() not in _OURS


def opening(
    names: tuple[str, ...],
    defaults: tuple[tuple[str, str], ...],
    read_only: bool,
    *,
    guarded: bool = False,
) -> str:
    """Return the statement that takes on a role and makes settings only for its transaction.

    Its slots take the role and then each setting's value.  Raises ``ValueError`` for a name
    that may not travel.

    :param defaults: settings made before, with their values: those of a configuration, never of a request.
    :param guarded: whether it fails in a transaction that began with other defaults than there are now.
    """
    calls = [_call("role", "$1")]
    calls += [_call(checked(name), quote_literal(value)) for name, value in defaults]
    calls += [_call(checked(name), f"${slot}") for slot, name in enumerate(names, 2)]
    if read_only:
        calls.append(_call("transaction_read_only", "'on'"))
    return _without_columns(calls, _guard(read_only=read_only) if guarded else "")


def as_login_role(settings: tuple[tuple[str, str], ...], *, guarded: bool = False) -> str:
    """Return the beginning of the daemon's own SQL; see ``opening``."""
    calls = [
        _call("role", "'none'"),
        *[_call(checked(name), quote_literal(value)) for name, value in settings],
    ]
    return _without_columns(calls, _guard(read_only=False) if guarded else "")


def _without_columns(calls: Sequence[str], guard: str = "") -> str:
    """Return SQL that evaluates all calls, in their order, and whose one row has no columns to be sent.

    :param guard: a condition without which it fails.
    """
    groups = [calls[first : first + _MAX_ARGUMENTS] for first in range(0, len(calls), _MAX_ARGUMENTS)]
    counts = [f"pg_catalog.num_nonnulls({','.join(group)})" for group in groups]
    made = f"{' operator(pg_catalog.+) '.join(counts)} operator(pg_catalog.>=) 0"
    if guard:
        # The value is unknown until it runs, so that the planner does not cast it before.
        leftovers = f"pg_catalog.concat('{LEFTOVERS}',{_current('transaction_isolation')})::boolean"
        made = f"case when {guard} then {made} else {leftovers} end"
    return f"select where {made}"


LEFTOVERS = f"{ERROR_MARKER}the transaction began with settings that were left for the session: "
"""Begins the value in the error of a guarded transaction."""


def _guard(*, read_only: bool) -> str:
    """Return the condition that a transaction is as the defaults have it; a standby's only read."""
    same = [_same("isolation"), _same("deferrable")]
    if not read_only:
        same.append(f"({_same('read_only')} or pg_catalog.pg_is_in_recovery())")
    return " and ".join(same)


def _same(name: str) -> str:
    return f"{_current(f'transaction_{name}')} {EQUAL} {_current(f'default_transaction_{name}')}"


def _current(name: str) -> str:
    return f"pg_catalog.current_setting('{name}')"


_MAX_ARGUMENTS = 100
"""Arguments that PostgreSQL takes for one function."""


OWN_SETTINGS = (("search_path", OWN_SCHEMA), ("DateStyle", "ISO"))
"""Settings of the SQL that a daemon and its commands run for themselves, on every connection.

It finds only PostgreSQL's own objects, whatever others create, and its rows have dates that are read.
"""

BEGIN_OWN_SQL = "".join(
    f"select pg_catalog.set_config('{name}','{value}',true);" for name, value in OWN_SETTINGS
)
"""Makes ``OWN_SETTINGS`` for the rest of its transaction."""

CALLERS_OBJECTS = (
    "select pg_catalog.set_config(name,reset_val,true) from pg_catalog.pg_settings"
    f" where name {EQUAL} 'search_path';"
)
"""Restores the search path of the login role."""


def _call(name: str, value: str) -> str:
    # With its schema, as a search path may name one with a function of the same name.
    return f"pg_catalog.set_config('{name}',{value},true)"


def checked(name: str) -> str:
    """Return the name of a setting; raises ``ValueError`` for one that may not travel."""
    if not may_travel(name):
        raise ValueError(f"Not a setting that may travel with a statement: {name!r}")
    return name


def begin(level: str) -> str:
    """Return the statement that begins a transaction of an isolation level.

    Raises ``ValueError`` for text that is not a level.
    """
    if level not in ISOLATION_LEVELS:
        raise ValueError(f"Not an isolation level: {level!r}")
    return f"begin isolation level {level.lower()}"


def typed(text: str, types: tuple[str, ...]) -> Template:
    """Return a statement with its slots cast to their types, for a parser that gets no types.

    A slot without a type, or of type ``unknown``, stays as it is.
    """
    return _remembered(text, types) if len(text) <= _LONGEST_REMEMBERED else _typed(text, types)


def _typed(text: str, types: tuple[str, ...]) -> Template:
    order: list[int] = []

    def place(index: int) -> str:
        if index not in order:
            order.append(index)
        return f"${order.index(index) + 1}{_cast(types, index)}"

    return Template(_replaced(text, place), tuple(order))


_LONGEST_REMEMBERED = 10_000
"""Characters of the longest statement whose template is remembered, to bound the memory."""

_remembered = lru_cache(maxsize=1024)(_typed)


def written(text: str, types: tuple[str, ...], literals: Sequence[str]) -> str:
    """Return a statement with literals, quoted already, in its slots, cast to their types."""
    return _replaced(text, lambda index: literals[index] + _cast(types, index))


def _cast(types: tuple[str, ...], index: int) -> str:
    kind = types[index] if index < len(types) else "unknown"
    return "" if kind == "unknown" else f"::{kind}"


def _replaced(text: str, place: Callable[[int], str]) -> str:
    """Return a statement with a text in place of each slot, by its index."""
    return _TOKEN.sub(lambda match: place(int(match["slot"]) - 1) if match["slot"] else match[0], text)


@lru_cache(maxsize=256)
def split(text: str) -> tuple[Template, ...]:
    """Return the statements of a text, which ``;`` separates."""
    ends = [match.start() for match in _TOKEN.finditer(text) if match[0] == ";"]
    parts = [text[begin + 1 : end] for begin, end in pairwise([-1, *ends, len(text)])]
    return tuple([_typed(part.strip(), ()) for part in parts if _TOKEN.sub(_without_comments, part).strip()])


def _without_comments(match: re.Match[str]) -> str:
    return "" if match[0].startswith(("--", "/*")) else match[0]


def comment(**members: str) -> str:
    """Return a comment as sqlcommenter writes it, without the members that are empty.

    Percent-encoding leaves nothing in it that could end it or a quotation.
    """
    pairs = [f"{name}='{quote(value, safe='')}'" for name, value in sorted(members.items()) if value]
    return f"/*{','.join(pairs)}*/"


def search_path(schemas: tuple[str, ...]) -> str:
    """Return the value of the ``search_path`` setting."""
    return ", ".join(quote_identifier(schema) for schema in schemas)
