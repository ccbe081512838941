"""What planning returns: statements, and how their row becomes the answer, as values that can be cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dataapi.database.message import Bound
from dataapi.http.messages import Reply
from dataapi.rest.negotiation import Media
from dataapi.rest.parse.preferences import Action
from dataapi.rest.parse.query import Values
from dataapi.sql.statement import Compiled


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The rows of a table."""


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """What a change of a table's rows did.

    :ivar represents: whether the body holds the rows.
    :ivar merges: whether the inserted rows are counted apart from the updated ones.
    """

    action: Action
    table: str
    represents: bool
    merges: bool


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """The result of a function.

    :ivar is_void: whether the function returns nothing.
    :ivar is_single: whether it is one value or row.
    :ivar is_binary: whether the body is the value of a ``bytea``.
    :ivar unwrapped: whether the one member of an array stands without its brackets.
    """

    is_void: bool
    is_single: bool
    is_binary: bool
    unwrapped: bool


Answer = ReadAnswer | WriteAnswer | CallAnswer
"""How the row of a statement becomes the answer."""


class StatementPlan(NamedTuple):
    """Statements to run in order, and how the row of the last one becomes the answer.

    :ivar statements: the last one's row is a ``ResultRow``; a client asks for the plan of the one before, if
        there are several.
    :ivar media: the negotiated media type; with its ``explain`` the statement's plan is the answer.
    :ivar settings: further settings of the transaction, ``(name, value)``.
    :ivar estimated: a statement without its page, whose planned number of rows becomes the row's total
        when that is None or beyond ``estimated_beyond``.
    :ivar by_replica: whether a replica may run it.
    """

    statements: tuple[Compiled, ...]
    media: Media
    answer: Answer
    read_only: bool
    settings: tuple[tuple[str, str], ...] = ()
    estimated: Compiled | None = None
    estimated_beyond: int | None = None
    by_replica: bool = False


class StreamPlan(NamedTuple):
    """A read whose rows are sent while they come.

    :ivar statement: returns one text per row: the bytes to send.
    :ivar head: the reply without its body.
    :ivar prefix: what is sent before the first row, such as a header line.
    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    :ivar by_replica: whether a replica may run it.
    """

    statement: Bound
    head: Reply
    prefix: bytes = b""
    settings: tuple[tuple[str, str], ...] = ()
    offset: int = 0
    by_replica: bool = False


Planned = tuple[StatementPlan, Values] | StreamPlan | Reply
"""A plan with the values of one request; a ``Reply`` needs nothing of the database."""
