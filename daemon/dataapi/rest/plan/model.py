"""Plans of requests. A plan depends only on a ``PlanInput``, so requests with equal inputs share it."""

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
class ReadResponse:
    """A response with rows of a table. ``headers`` are the same for all reads of the table."""

    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WriteResponse:
    """A response to a write. ``represents`` is true if the body contains the rows.

    ``merges`` is true if inserted and updated rows are counted separately.
    """

    action: Action
    table: str
    represents: bool
    merges: bool


@dataclass(frozen=True, slots=True)
class CallResponse:
    """A response with the result of a function.

    If ``unwrapped`` is true, the brackets of a one-element array are removed.
    """

    is_void: bool
    is_single: bool
    is_binary: bool
    unwrapped: bool


ResponseKind = ReadResponse | WriteResponse | CallResponse


@dataclass(frozen=True, slots=True)
class FiltersAsArguments:
    """The filters that a function call uses as arguments.

    ``names`` are the names of these filters. ``shape`` contains all filters of the query string.
    """

    shape: SelectionShape
    names: Collection[str]

    def adapt(self, values: Values) -> Values:
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
    """Checks that the objects in the body have distinct values in the key columns."""

    key: tuple[str, ...]

    def adapt(self, values: Values) -> Values:
        check_keys(values.objects, self.key)
        return values


@dataclass(frozen=True, slots=True)
class UnlimitedRows:
    """Rejects ``max-affected`` for streamed rows, because some rows are sent before others are read."""

    def adapt(self, values: Values) -> Values:
        raise not_followed(f"max-affected={values.maximum}")


AdaptedValues = FiltersAsArguments | UniqueKeys | UnlimitedRows


class StatementPlan(NamedTuple):
    """Statements to run in order, and the kind of response to build from the last statement's row.

    :ivar statements: the last statement returns a ``ResultRow``.
    :ivar media: the negotiated media type. If it has ``explain``, the statement's plan is returned.
    :ivar settings: further settings of the transaction, as (name, value).
    :ivar adapted: adapter for the values of a request, None if there is nothing to adapt.
    :ivar estimated: statement without limit and offset. Its estimated number of rows replaces a total that is
        None or larger than ``estimated_beyond``.
    :ivar current: for a conditional write, statement that reads and counts the rows as a GET would.
    """

    statements: tuple[Compiled, ...]
    media: Media
    response: ResponseKind
    read_only: bool
    settings: tuple[tuple[str, str], ...] = ()
    adapted: AdaptedValues | None = None
    estimated: Compiled | None = None
    estimated_beyond: int | None = None
    by_replica: bool = False
    current: Compiled | None = None

    @property
    def explained(self) -> Compiled:
        """The statement to explain: the mutation, even if a later statement reads its rows."""
        return self.statements[-2] if len(self.statements) > 1 else self.statements[-1]


class StreamPlan(NamedTuple):
    """A read whose rows are streamed. See also ``StatementPlan`` and ``ReadResponse``.

    :ivar statements: a single statement. It returns the bytes to send for each row.
    :ivar prefix: bytes before the first row, such as a header line.
    """

    statements: tuple[Compiled, ...]
    media: Media
    prefix: bytes = b""
    settings: tuple[tuple[str, str], ...] = ()
    adapted: AdaptedValues | None = None
    by_replica: bool = False
    headers: tuple[tuple[str, str], ...] = ()


Plan = StatementPlan | StreamPlan | Reply
"""The plan of a request. A ``Reply`` needs no database access."""
