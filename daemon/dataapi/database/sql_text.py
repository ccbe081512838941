"""The text of SQL: quoted names and literals, and templates with ``%s`` places for psycopg2 to fill.

Everything that goes into a statement is quoted here.  No value of a request is ever part of a template, so
a template is made once and used for every caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

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


OWN_SCHEMA = "pg_catalog"
"""The schema of what is PostgreSQL's own."""


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
    """Return an expression as PostgreSQL writes it, naming the schema of what is PostgreSQL's own.

    :param expression: was written for a search path that leads to PostgreSQL's own objects alone, so that
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
# The identity just taken on, what a message promises, and the encoding that answers are read in.
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
    | %
    """,
    re.VERBOSE | re.DOTALL,
)


REQUEST = "request."
"""What the names of settings that tell SQL of the request begin with."""

CURSOR = "dataapi_rows"
"""The one cursor of a transaction that reads its rows piece by piece."""

ISOLATION_LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
"""From the weakest to the strictest."""


@dataclass(frozen=True, slots=True)
class Template:
    """SQL text with places for values.

    :ivar order: for each place the index of its value.
    """

    text: str
    order: tuple[int, ...]

    def arrange(self, values: tuple[object, ...]) -> list[object]:
        """Return the values in the order of the places; a slot may have several, or none."""
        return [values[index] for index in self.order]


def may_travel(name: str) -> bool:
    """Whether a setting of this name may be made for a caller's transaction."""
    return _SETTING.fullmatch(name) is not None and name.lower() not in _OURS


def opening(names: tuple[str, ...], defaults: tuple[tuple[str, str], ...], read_only: bool) -> str:
    """Return the statement that takes on a role and makes settings for its transaction alone.

    Its slots take the role and then each setting's value.  Raises ``ValueError`` for a name
    that may not travel.

    :param defaults: settings made before, with their values: those of a configuration, never of a request.
    """
    calls = [_call("role", "$1")]
    calls += [_call(checked(name), quote_literal(value)) for name, value in defaults]
    calls += [_call(checked(name), f"${slot}") for slot, name in enumerate(names, 2)]
    if read_only:
        calls.append(_call("transaction_read_only", "'on'"))
    return _without_columns(calls)


def set_locally(settings: Sequence[tuple[str, str]]) -> str:
    """Return the body of a ``DO`` that makes settings by ``SET LOCAL``, for the transaction.

    Citus sends workers the text of a message that has ``SET LOCAL``, all of it; in a block each is a text of
    its own.  Of ``set_config`` it sends them nothing.
    """
    made = [f"set local {checked(name)} = {quote_literal(value)};" for name, value in settings]
    return f"begin {''.join(made)}end"


def made_on_workers(*names: str) -> str:
    """Return SQL that makes settings of the transaction on Citus' workers, too, where they have a value."""
    names_ = ",".join(quote_literal(checked(name)) for name in names)
    return (
        "do $dataapi$declare name text;begin "
        f"foreach name in array array[{names_}] loop "
        "if pg_catalog.current_setting(name, true) <> '' then "
        "execute pg_catalog.concat('set local ', name, ' = ', "
        "pg_catalog.quote_literal(pg_catalog.current_setting(name)));"
        "end if;end loop;end$dataapi$"
    )


def as_login_role(settings: tuple[tuple[str, str], ...]) -> str:
    """Return the template of what the daemon's own SQL begins with; it has no places."""
    calls = [
        _call("role", "'none'"),
        *[_call(checked(name), quote_literal(value)) for name, value in settings],
    ]
    return f"{_without_columns(calls)};".replace("%", "%%")


def _without_columns(calls: Sequence[str]) -> str:
    """Return SQL that evaluates all calls, in their order, and whose one row has no columns to be sent."""
    groups = [calls[first : first + _MOST_ARGUMENTS] for first in range(0, len(calls), _MOST_ARGUMENTS)]
    counts = [f"pg_catalog.num_nonnulls({','.join(group)})" for group in groups]
    return f"select where {' operator(pg_catalog.+) '.join(counts)} operator(pg_catalog.>=) 0"


_MOST_ARGUMENTS = 100
"""Arguments that PostgreSQL takes for one function."""


OWN_OBJECTS_ONLY = f"select pg_catalog.set_config('search_path','{OWN_SCHEMA}',true);"
"""Lets what follows in its transaction find PostgreSQL's own objects alone, whatever others create."""

CALLERS_OBJECTS = "set local search_path to default;"
"""Lets what follows find what a login role finds by itself."""


def _call(name: str, value: str) -> str:
    # With its schema, as a search path may name one with a function of the same name.
    return f"pg_catalog.set_config('{name}',{value},true)"


def checked(name: str) -> str:
    """Return the name of a setting; raises ``ValueError`` for one that may not travel."""
    if not may_travel(name):
        raise ValueError(f"Not a setting that may travel with a statement: {name!r}")
    return name


def isolation(level: str) -> str:
    """Return the statement that sets a transaction's isolation level, to come before any query of it.

    Raises ``ValueError`` for what is not a level.
    """
    if level not in ISOLATION_LEVELS:
        raise ValueError(f"Not an isolation level: {level!r}")
    return f"set transaction isolation level {level.lower()};"


def inlined(text: str, types: tuple[str, ...] = ()) -> Template:
    """Return the template of a statement sent without preparing it, slots cast to their types.

    A slot without a type, or of type ``unknown``, stays a bare literal.
    """
    return _remembered(text, types) if len(text) <= _LONGEST_REMEMBERED else _inlined(text, types)


def _inlined(text: str, types: tuple[str, ...]) -> Template:
    order: list[int] = []

    def place(match: re.Match[str]) -> str:
        slot = match["slot"]
        if slot is None:
            return match[0].replace("%", "%%")
        index = int(slot) - 1
        order.append(index)
        kind = types[index] if index < len(types) else "unknown"
        return "%s" if kind == "unknown" else "%s::" + kind.replace("%", "%%")

    return Template(_TOKEN.sub(place, text), tuple(order))


def typed(text: str, types: tuple[str, ...]) -> Template:
    """Return a statement with its slots cast to their types, for a parser that is told of none.

    Its places are slots still, those that the text has, as such a parser takes no others.
    """
    order: list[int] = []

    def place(match: re.Match[str]) -> str:
        slot = match["slot"]
        if slot is None:
            return match[0]
        index = int(slot) - 1
        if index not in order:
            order.append(index)
        kind = types[index] if index < len(types) else "unknown"
        return f"${order.index(index) + 1}" + ("" if kind == "unknown" else f"::{kind}")

    return Template(_TOKEN.sub(place, text), tuple(order))


_LONGEST_REMEMBERED = 10_000
"""Characters of the longest statement whose template is remembered, to bound the memory."""

_remembered = lru_cache(maxsize=1024)(_inlined)


def prepare(name: str, text: str, types: tuple[str, ...]) -> str:
    """Return the template of a ``PREPARE``; it has no places."""
    arguments = f"({','.join(types)})" if types else ""
    return f"prepare {name}{arguments} as {text};".replace("%", "%%")


def execute(name: str, arity: int) -> str:
    """Return the template of an ``EXECUTE`` with a place per argument."""
    return f"execute {name}({','.join(['%s'] * arity)});" if arity else f"execute {name};"


def filled(template: str, values: Sequence[object]) -> tuple[str, Sequence[object] | None]:
    """Return SQL without places for a template and its values, or both as they are, for psycopg2 to quote.

    It takes integers, and texts without a backslash, which read the same whatever
    ``standard_conforming_strings`` is; psycopg2 takes several times as long for them.
    """
    try:
        # A message's values are texts, which are quoted in one go.
        joined = "\0".join(values)  # type: ignore[arg-type]
    except TypeError:
        literals = list(map(_literal, values))
        return (template, values) if None in literals else (template % tuple(literals), None)
    if "\\" in joined or joined.count("\0") >= max(1, len(values)):
        return template, values
    if not values:
        return template % (), None
    quoted = joined.replace("'", "''").replace("\0", "'\0'")
    return template % tuple(f"'{quoted}'".split("\0")), None


def written(template: str, values: Sequence[object]) -> str:
    """Return SQL without places for a template and its values, each text or None."""
    return template % tuple(["null" if value is None else quote_literal(str(value)) for value in values])


def _literal(value: object) -> str | None:
    if type(value) is int:
        return f"{value}" if value >= 0 else f" {value}"
    if type(value) is str and "\\" not in value and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    return None


def comment(**members: str) -> str:
    """Return the template of a comment as sqlcommenter writes it, without the members that are empty.

    Percent-encoding leaves nothing in it that could end it or a quotation.
    """
    pairs = [f"{name}='{quote(value, safe='')}'" for name, value in sorted(members.items()) if value]
    return f"/*{','.join(pairs)}*/".replace("%", "%%")


def fetch(rows: int) -> str:
    """Return the statement that takes the cursor's next rows."""
    return f"fetch {rows} from {CURSOR}"


def search_path(schemas: tuple[str, ...]) -> str:
    """Return the value of the ``search_path`` setting."""
    return ", ".join(quote_identifier(schema) for schema in schemas)
