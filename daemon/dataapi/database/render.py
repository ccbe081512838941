"""The text of a message: templates with ``%s`` places that psycopg2 fills with quoted values.

No value is ever part of a template, so a template is made once and used for every caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from dataapi.database.quoting import quote_identifier

_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*")
# The identity just taken on, what a message promises, and the encoding that answers are read in.
_OURS = frozenset({"role", "session_authorization", "transaction_read_only", "client_encoding"})
# What may hold a ``$1`` that is no slot comes first: strings, quoted names, dollar quotes, comments, names.
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


CURSOR = "dataapi_rows"
"""The one cursor of a transaction that reads its rows piece by piece."""

ISOLATION_LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
"""From the weakest to the strictest."""


@dataclass(frozen=True, slots=True)
class Template:
    """SQL text with ``%s`` places.

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


@lru_cache(maxsize=1024)
def opening(names: tuple[str, ...], read_only: bool) -> str:
    """Return the statement that takes on a role and makes settings for its transaction alone.

    Its places take the role and then each setting's value.  Raises ``ValueError`` for a name
    that may not travel.
    """
    calls = ["set_config('role',%s,true)", *_setting_calls(names)]
    if read_only:
        calls.append("set_config('transaction_read_only','on',true)")
    return f"select {','.join(calls)};"


@lru_cache(maxsize=256)
def further(names: tuple[str, ...], defaults: tuple[str, ...], read_only: bool) -> str:
    """Return the statements that make settings within a transaction that goes on.

    Its places take the role, which a function may have changed, and then the settings' values.  Raises
    ``ValueError`` for a name that may not travel.

    :param defaults: settings that take their session's value again before.
    """
    _setting_calls(defaults)
    again = "".join(f"set local {name} to default;" for name in defaults)
    calls = _setting_calls(names)
    if read_only:
        calls.append("set_config('transaction_read_only','on',true)")
    made = f"select {','.join(calls)};" if calls else ""
    return f"select set_config('role',%s,true);{again}{made}"


def _setting_calls(names: tuple[str, ...]) -> list[str]:
    for name in names:
        if not may_travel(name):
            raise ValueError(f"Not a setting that may travel with a statement: {name!r}")
    return [f"set_config('{name}',%s,true)" for name in names]


def isolation(level: str) -> str:
    """Return the statement that sets a transaction's isolation level, to come before any query of it.

    Raises ``ValueError`` for what is no level.
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


def fetch(rows: int) -> str:
    """Return the statement that takes the cursor's next rows."""
    return f"fetch {rows} from {CURSOR}"


def search_path(schemas: tuple[str, ...]) -> str:
    """Return the value of the ``search_path`` setting."""
    return ", ".join(quote_identifier(schema) for schema in schemas)
