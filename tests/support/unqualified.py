"""Finds operators and functions that SQL does not qualify with a schema.

PostgreSQL finds these through the search path, so anyone who can create objects in an exposed schema could
run code as other callers.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from dataapi.database.citus import BlockStatement
from dataapi.database.connection import Connection
from dataapi.database.sql_text import Template, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dataapi.database.steps import Step

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<value>[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|\$(?P<tag>[a-z]*)\$.*?\$(?P=tag)\$
        |\$[0-9]+|%s|[0-9][0-9.]*)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[^\W\d]\w*)
    | (?P<mark>::|:=|=>|[().,;:\[\]])
    | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)
    """,
    re.VERBOSE | re.DOTALL,
)

_OWN_OBJECTS_ONLY = re.compile(
    r"set_config\('search_path','pg_catalog',true\)|set local search_path = pg_catalog;",
)
"""Prefix of SQL that restricts the search path to PostgreSQL's own objects."""

_WORDS = """
all analyze and any array as by coalesce conflict distinct else elsif except execute exists explain filter
from greatest having if in intersect into join key lateral least limit materialized not of offset on operator
or over partition prepare returning row select set some then union values when where within
"""
_BEFORE_PARENTHESIS = frozenset(_WORDS.split())
"""Keywords that can precede a parenthesis without being a function call."""
_BEFORE_LIST = frozenset({"as", ",", "with", "recursive", ")", "prepare", "execute"})
"""Tokens that precede a name with a list of columns, types or values, not a function call."""
_HIDDEN = frozenset({"between", "ilike", "like", "natural", "nullif", "overlaps", "similar", "using"})
"""Keywords that PostgreSQL translates to operators or functions found through the search path."""
_ENDS_ASSIGNMENTS = frozenset({";", "from", "returning", "where"})


def unqualified(sql: str) -> list[str]:
    """Return the unqualified operators and functions in SQL, each with the token that follows it.

    This includes syntax that PostgreSQL expands to an operator: ``in``, ``nullif``, ``is distinct from``.
    """
    return [] if _OWN_OBJECTS_ONLY.search(sql) else list(_found(_tokens(sql)))


class Watch:
    """Checks the SQL that the daemon and its commands send in this process.

    :ivar found: problems since the last call to ``taken``.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._clean: set[int] = set()

    def read(self, sql: str) -> None:
        """Check SQL, unless it has been checked before."""
        if hash(sql) not in self._clean:
            found = unqualified(sql)
            self.found += found
            if not found:
                self._clean.add(hash(sql))

    def taken(self) -> list[str]:
        found, self.found = self.found, []
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Check SQL sent on connections, including the bodies of ``DO`` blocks."""
        send, block_body = Connection.send, BlockStatement.block_body

        def read_and_send(
            connection: Connection,
            steps: Sequence[Step],
            ending: Sequence[Step] = (),
            *,
            shared: bool = False,
        ) -> Any:
            # The daemon's own SQL restricts the search path in its first statement.
            self.read(";".join([step.text.decode() for step in steps]))
            return send(connection, steps, ending, shared=shared)

        def read_and_surround(block: BlockStatement, text: str) -> str:
            body = block_body(block, text)
            self.read(body)
            return body

        def read_and_split(text: str) -> tuple[Template, ...]:
            self.read(text)
            return split(text)

        with (
            patch("dataapi.database.script.split", read_and_split),
            patch.object(BlockStatement, "block_body", read_and_surround),
            patch.object(Connection, "send", read_and_send),
        ):
            yield


WATCH = Watch()


def _tokens(sql: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    while position < len(sql):
        match = _TOKEN.match(sql, position)
        assert match is not None, f"cannot be read from here: {sql[position : position + 40]}"
        kind = "value" if match["value"] else match.lastgroup or ""
        if kind != "blank":
            text = match[0].lower() if kind == "word" else match[0].replace("%%", "%")
            tokens.append((kind, text))
        position = match.end()
    return tokens


def _found(tokens: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield unqualified operators and functions. Assignments, such as after ``set``, are not operators."""
    edge = ("", "")
    assigning = [False]
    for position, (kind, text) in enumerate(tokens):
        before = tokens[position - 1] if position else edge
        after = tokens[position + 1] if position + 1 < len(tokens) else edge
        earlier = tokens[position - 2][1] if position > 1 else ""
        if text == "(":
            assigning.append(False)
        elif text == ")":
            assigning.pop()
        elif kind in ("word", "mark") and text in _ENDS_ASSIGNMENTS:
            assigning[-1] = False
        elif kind == "word" and text == "set":
            assigning[-1] = True
        qualified = before[1] == "."
        assigned = assigning[-1] and text == "=" and earlier in ("set", ",", "local")
        if qualified or assigned:
            continue
        if (
            (kind == "operator" and not _is_no_operator(text, before, after))
            or (kind == "word" and _hides_operator(text, before, tokens[position + 1 : position + 3]))
            or (after[1] == "(" and _is_called(kind, text, before[1]))
        ):
            yield " ".join(token for _, token in tokens[max(0, position - 3) : position + 4])


def _is_no_operator(text: str, before: tuple[str, str], after: tuple[str, str]) -> bool:
    """Whether a token is not an operator: a ``*`` that means all columns or rows, or a number's sign."""
    begins = before[0] in ("word", "operator") or before[1] in ("(", ",", "", "=>")
    return (text == "*" and (begins or after[1] == "from")) or (
        text == "-" and begins and after[0] == "value"
    )


def _hides_operator(text: str, before: tuple[str, str], after: Sequence[tuple[str, str]]) -> bool:
    following = [token for _, token in after]
    match text:
        case "in":
            return before[1] not in ("", ";") and following[0] == "("
        case "case":
            return following[0] != "when"
        case "distinct":
            return following[0] == "from" and following[1] != "null"
        case _:
            return text in _HIDDEN


def _is_called(kind: str, text: str, before: str) -> bool:
    if kind == "quoted":
        return before not in _BEFORE_LIST
    return kind == "word" and text not in _BEFORE_PARENTHESIS and before not in (*_BEFORE_LIST - {","}, "::")
