"""SQL text: quoted identifiers, literals from the catalog, and parameters.

Values from requests are never part of the text, so that all callers can share a statement.
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

MAX_IDENTIFIER_BYTES = 63
"""Maximum length of an identifier in bytes. PostgreSQL truncates longer identifiers."""

ERROR_MARKER = f"~dataapi-{os.urandom(8).hex()}~"
"""Prefix of the values in errors that our statements raise on purpose.

The prefix is random, so that stored or sent values cannot match.
"""

ALIAS = "t~"
"""Prefix of the aliases in generated statements, followed by a number."""

_ALIASED = re.compile(f"{ALIAS}[0-9]+[.]", re.ASCII)


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Return a string literal that is valid with either setting of ``standard_conforming_strings``."""
    quoted = text.replace("'", "''")
    if "\\" in quoted:
        return " E'" + quoted.replace("\\", "\\\\") + "'"
    return "'" + quoted + "'"


OWN_SCHEMA = "pg_catalog"


def operator_sql(operator: str, schema: str = OWN_SCHEMA) -> str:
    """Return a schema-qualified operator.

    PostgreSQL selects the best match for the argument types in all schemas of the search path. Roles that can
    create operators or functions in these schemas could make other roles run them.
    """
    return f"operator({schema if schema == OWN_SCHEMA else quote_identifier(schema)}.{operator})"


# PostgreSQL deparses keywords in upper case, and type names after ``::``.
_EXPRESSION_TOKEN = re.compile(
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


def qualify_builtins(expression: str) -> str:
    """Return an expression with PostgreSQL's own operators and functions schema-qualified.

    :param expression: deparsed by PostgreSQL with a search path of only ``pg_catalog``, so that all other
        objects are already qualified.
    """

    def qualify(match: re.Match[str]) -> str:
        if match["function"] or match["keyword"]:
            return f"{OWN_SCHEMA}.{match[0]}"
        return operator_sql(match[0]) if match["operator"] else match[0]

    return _EXPRESSION_TOKEN.sub(qualify, expression)


EQUAL, UNEQUAL, GREATER = operator_sql("="), operator_sql("<>"), operator_sql(">")
PLUS, MINUS, CONCATENATE = operator_sql("+"), operator_sql("-"), operator_sql("||")


def without_aliases(message: str) -> str:
    return _ALIASED.sub("", message)


_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*")
# Settings that determine the identity and access mode of a message, or the encoding of its result.
_RESERVED_SETTINGS = frozenset({"role", "session_authorization", "transaction_read_only", "client_encoding"})
# Strings, identifiers, dollar quotes and comments come first, because a ``$1`` in them is not a parameter.
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

CURSOR = "dataapi_rows"

ISOLATION_LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
"""Isolation levels, weakest first."""


@dataclass(frozen=True, slots=True)
class Template:
    """A statement with its parameters renumbered consecutively from ``$1``, as PostgreSQL requires.

    :ivar order: index of the value for each parameter.
    """

    text: str
    order: tuple[int, ...]

    def arrange(self, values: list[_T]) -> list[_T]:
        in_order = self.order == tuple(range(len(values)))
        return values if in_order else [values[index] for index in self.order]


def is_allowed_setting(name: str) -> bool:
    return _SETTING.fullmatch(name) is not None and name.lower() not in _RESERVED_SETTINGS


def opening(
    names: tuple[str, ...],
    defaults: tuple[tuple[str, str], ...],
    read_only: bool,
    *,
    guarded: bool = False,
    time_limit: int | None = None,
) -> str:
    """Return the statement that sets the role and the settings of a transaction.

    Its parameters are the role and the values of ``names``.

    :param defaults: settings from the configuration. They are set before ``names``.
    :param guarded: whether the statement fails if the transaction did not begin with the current defaults.
    :param time_limit: timeout of each following statement in milliseconds, None to keep the timeout in the
        settings.
    :raises ValueError: if a setting is not allowed.
    """
    calls = [_call("role", "$1")]
    calls += [_call(checked_setting(name), quote_literal(value)) for name, value in defaults]
    calls += [_call(checked_setting(name), f"${slot}") for slot, name in enumerate(names, 2)]
    if read_only:
        calls.append(_call("transaction_read_only", "'on'"))
    if time_limit is not None:
        calls.append(_call("statement_timeout", f"'{time_limit}'"))
    return _evaluate(calls, _guard(read_only=read_only) if guarded else "")


def as_login_role(settings: tuple[tuple[str, str], ...], *, guarded: bool = False) -> str:
    calls = [
        _call("role", "'none'"),
        *[_call(checked_setting(name), quote_literal(value)) for name, value in settings],
    ]
    return _evaluate(calls, _guard(read_only=False) if guarded else "")


def _evaluate(calls: Sequence[str], guard: str = "") -> str:
    """Return a statement that evaluates the calls in order and returns one row without columns.

    :param guard: condition; the statement fails if it is false.
    """
    groups = [calls[first : first + _MAX_ARGUMENTS] for first in range(0, len(calls), _MAX_ARGUMENTS)]
    counts = [f"pg_catalog.num_nonnulls({','.join(group)})" for group in groups]
    evaluation = f"{' operator(pg_catalog.+) '.join(counts)} operator(pg_catalog.>=) 0"
    if guard:
        # The text depends on a setting, so that the planner cannot evaluate the cast in advance.
        leftovers = f"pg_catalog.concat('{LEFTOVERS}',{_current('transaction_isolation')})::boolean"
        evaluation = f"case when {guard} then {evaluation} else {leftovers} end"
    return f"select where {evaluation}"


LEFTOVERS = f"{ERROR_MARKER}the transaction began with session settings of an earlier transaction: "
"""Text in PostgreSQL's error message if the condition of ``_guard`` is false."""


def _guard(*, read_only: bool) -> str:
    conditions = [_is_default("isolation"), _is_default("deferrable")]
    if not read_only:
        conditions.append(f"({_is_default('read_only')} or pg_catalog.pg_is_in_recovery())")
    return " and ".join(conditions)


def _is_default(name: str) -> str:
    return f"{_current(f'transaction_{name}')} {EQUAL} {_current(f'default_transaction_{name}')}"


def _current(name: str) -> str:
    return f"pg_catalog.current_setting('{name}')"


_MAX_ARGUMENTS = 100
"""PostgreSQL's maximum number of function arguments."""


OWN_SETTINGS = (("search_path", OWN_SCHEMA), ("DateStyle", "ISO"))
"""Settings for SQL of the daemon and its commands, on each connection.

Unqualified names refer only to PostgreSQL's own objects, and dates are in a format that we can parse.
"""

BEGIN_OWN_SQL = "".join(
    f"select pg_catalog.set_config('{name}','{value}',true);" for name, value in OWN_SETTINGS
)

RESTORE_SEARCH_PATH = (
    "select pg_catalog.set_config(name,reset_val,true) from pg_catalog.pg_settings"
    f" where name {EQUAL} 'search_path';"
)


def _call(name: str, value: str) -> str:
    # The name is qualified, because the search path may contain another function of the same name.
    return f"pg_catalog.set_config('{name}',{value},true)"


def checked_setting(name: str) -> str:
    if not is_allowed_setting(name):
        raise ValueError(f"this setting is not allowed: {name!r}")
    return name


def begin(level: str) -> str:
    if level not in ISOLATION_LEVELS:
        raise ValueError(f"invalid isolation level: {level!r}")
    return f"begin isolation level {level.lower()}"


def with_types(text: str, types: tuple[str, ...]) -> Template:
    """Return a statement with parameters cast to their types, except parameters of type ``unknown``."""
    return _cached_typed(text, types) if len(text) <= _MAX_CACHED_LENGTH else _typed(text, types)


def _typed(text: str, types: tuple[str, ...]) -> Template:
    order: list[int] = []

    def replace(index: int) -> str:
        if index not in order:
            order.append(index)
        return f"${order.index(index) + 1}{_cast(types, index)}"

    return Template(_replace_parameters(text, replace), tuple(order))


_MAX_CACHED_LENGTH = 10_000
"""Maximum length of a cached statement in characters, to limit memory use."""

_cached_typed = lru_cache(maxsize=1024)(_typed)


def substitute_literals(text: str, types: tuple[str, ...], literals: Sequence[str]) -> str:
    return _replace_parameters(text, lambda index: literals[index] + _cast(types, index))


def _cast(types: tuple[str, ...], index: int) -> str:
    type_ = types[index] if index < len(types) else "unknown"
    return "" if type_ == "unknown" else f"::{type_}"


def _replace_parameters(text: str, replace: Callable[[int], str]) -> str:
    return _TOKEN.sub(lambda match: replace(int(match["slot"]) - 1) if match["slot"] else match[0], text)


@lru_cache(maxsize=256)
def split(text: str) -> tuple[Template, ...]:
    ends = [match.start() for match in _TOKEN.finditer(text) if match[0] == ";"]
    parts = [text[begin + 1 : end] for begin, end in pairwise([-1, *ends, len(text)])]
    return tuple([_typed(part.strip(), ()) for part in parts if _TOKEN.sub(_without_comments, part).strip()])


def _without_comments(match: re.Match[str]) -> str:
    return "" if match[0].startswith(("--", "/*")) else match[0]


def comment(**members: str) -> str:
    """Return an sqlcommenter comment with the non-empty members. Values are percent-encoded."""
    pairs = [f"{name}='{quote(value, safe='')}'" for name, value in sorted(members.items()) if value]
    return f"/*{','.join(pairs)}*/"


def search_path(schemas: tuple[str, ...]) -> str:
    return ", ".join(quote_identifier(schema) for schema in schemas)
