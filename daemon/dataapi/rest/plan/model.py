"""Plans as values. They depend on a ``PlanInput`` only, so requests with equal inputs share them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from dataapi.http.messages import Reply
from dataapi.rest.negotiation import Media
from dataapi.rest.parse.body import check_keys
from dataapi.rest.parse.preferences import Action, not_followed
from dataapi.rest.parse.query import SelectionShape, Values
from dataapi.sql.statement import Compiled


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The rows of a table."""


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """The effect of a change on a table's rows.

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


@dataclass(frozen=True, slots=True)
class FiltersAsArguments:
    """Parameters of a call that look like filters but are arguments.

    :ivar shape: the selection as it was sent, with these filters.
    """

    shape: SelectionShape
    names: Collection[str]

    def adapt(self, values: Values) -> Values:
        """Return the values with the filters' texts as arguments."""
        literals, position = list[str](), 0
        for name, operation in self.shape.filters:
            following = position + operation.value_count
            literals += () if name in self.names else values.literals[position:following]
            position = following
        literals += values.literals[position:]
        arguments = dict(values.arguments)
        for name, text in values.filter_texts:
            if name in self.names:
                arguments[name] = (*arguments.get(name, ()), text)
        return values._replace(literals=tuple(literals), arguments=arguments)


@dataclass(frozen=True, slots=True)
class UniqueKeys:
    """Objects that identify their rows by a key. Each object must have a key of its own."""

    key: tuple[str, ...]

    def adapt(self, values: Values) -> Values:
        """Return the values.

        :raises ApiError: PGRST102 (400), an object has no key or the key of another object.
        """
        check_keys(values.objects, self.key)
        return values


@dataclass(frozen=True, slots=True)
class UnlimitedRows:
    """Streamed rows, whose number cannot be limited: some are sent before others are read."""

    def adapt(self, values: Values) -> Values:
        """Raise ``ApiError``: PGRST122 (400)."""
        raise not_followed(f"max-affected={values.maximum}")


AdaptedValues = FiltersAsArguments | UniqueKeys | UnlimitedRows
"""How the values of a request become those of its statements."""


class StatementPlan(NamedTuple):
    """Statements to run in order, and how the row of the last one becomes the answer.

    :ivar statements: the last one's row is a ``ResultRow``.
    :ivar media: the negotiated media type; with its ``explain`` the statement's plan is the answer.
    :ivar settings: further settings of the transaction, ``(name, value)``.
    :ivar adapted: how the values of a request become those of the statements, None if they are the same.
    :ivar estimated: a statement without its page, whose planned number of rows becomes the row's total
        when that is None or beyond ``estimated_beyond``.
    :ivar by_replica: whether a replica may run it.
    """

    statements: tuple[Compiled, ...]
    media: Media
    answer: Answer
    read_only: bool
    settings: tuple[tuple[str, str], ...] = ()
    adapted: AdaptedValues | None = None
    estimated: Compiled | None = None
    estimated_beyond: int | None = None
    by_replica: bool = False

    @property
    def explained(self) -> Compiled:
        """The statement whose plan a client gets: the one that changes rows, if another one reads them."""
        return self.statements[-2] if len(self.statements) > 1 else self.statements[-1]


class StreamPlan(NamedTuple):
    """A read whose rows are sent while they come.

    :ivar statements: one that returns one text per row: the bytes to send.
    :ivar prefix: the bytes before the first row, such as a header line.
    :ivar settings, adapted, by_replica: as of ``StatementPlan``.
    """

    statements: tuple[Compiled, ...]
    media: Media
    prefix: bytes = b""
    settings: tuple[tuple[str, str], ...] = ()
    adapted: AdaptedValues | None = None
    by_replica: bool = False


Plan = StatementPlan | StreamPlan | Reply
"""How a request is answered; a ``Reply`` needs nothing from the database."""
