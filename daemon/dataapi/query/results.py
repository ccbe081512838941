"""What a statement answers: the outputs of the algebra, of which ``outputs`` makes JSON.

Names, forms and aggregates are fixed by the schema; a client's own alias stands behind a ``Parameter``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dataapi.query.algebra import Call, Expression, OrderTerm, Parameter, Rows
from dataapi.query.conditions import After, Condition


@dataclass(frozen=True, slots=True)
class Text:
    """A fixed text, such as a type's name; never a request's."""

    text: str


Key = Text | Parameter
"""An output member's name: a name of the schema, or a client's alias behind a parameter."""


class WireForm(Enum):
    """How a value is written to JSON."""

    JSON = "json"
    """As PostgreSQL's ``to_json`` writes it."""
    TEXT = "text"
    """Its text form, as a JSON string."""
    TEXT_ARRAY = "text[]"
    """A list of its elements' text forms."""
    ENUM = "enum"
    """An enum label, renamed."""
    ENUM_ARRAY = "enum[]"
    """A list of enum labels, renamed."""


Labels = tuple[tuple[str, str], ...]
"""For the enum forms, ``(label, shown)`` where they differ."""


@dataclass(frozen=True, slots=True)
class Value:
    """An expression of the current row, or of the group in scope."""

    expression: Expression
    form: WireForm = WireForm.JSON
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class FunctionValue:
    """The scalar or array result of a function call."""

    call: Call
    form: WireForm = WireForm.JSON
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class FunctionValues:
    """The results of a function that returns a set of scalars, as a list."""

    call: Call
    form: WireForm = WireForm.JSON
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class FunctionVoid:
    """Null, after calling a function for what it does."""

    call: Call


@dataclass(frozen=True, slots=True)
class JsonText:
    """JSON that was made elsewhere, behind a ``json`` parameter."""

    parameter: Parameter


@dataclass(frozen=True, slots=True)
class Instant:
    """The transaction's time."""


@dataclass(frozen=True, slots=True)
class NodeId:
    """The current row's node id (reference/graphql.md 1.4)."""

    schema: str
    table: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The current row's position in an order (reference/graphql.md 1.4)."""

    order: tuple[OrderTerm, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object, its members in order."""

    members: tuple[tuple[Key, Output], ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Members of related rows among the members of the row itself.

    :ivar many: each member is an array with the values of all related rows, in their order;
        else there is at most one related row, and null stands for those of none.
    """

    rows: Rows
    record: Record
    many: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A row as REST shows it: members in order, of the row itself and of spread relationships.

    :ivar grouped: some of the values are aggregates (also behind spreads of one row); the rows are grouped
        by all others.
    """

    members: tuple[tuple[Key, Output] | Spread, ...]
    grouped: bool = False


@dataclass(frozen=True, slots=True)
class Null:
    """JSON null."""


@dataclass(frozen=True, slots=True)
class One:
    """An output of the one row, null when there is none."""

    rows: Rows
    output: Output


@dataclass(frozen=True, slots=True)
class Many:
    """A JSON array with an output of each row."""

    rows: Rows
    output: Output


@dataclass(frozen=True, slots=True)
class PageFact:
    """A fact about a page, of which ``pageInfo`` is made."""

    which: Fact


class Fact(Enum):
    """What a ``PageFact`` tells."""

    START_CURSOR = "startCursor"
    END_CURSOR = "endCursor"
    HAS_NEXT_PAGE = "hasNextPage"
    HAS_PREVIOUS_PAGE = "hasPreviousPage"


@dataclass(frozen=True, slots=True)
class Edges:
    """The page's rows, each as the output says, in the page's order."""

    output: Output


@dataclass(frozen=True, slots=True)
class Summary:
    """Outputs made of aggregates over all rows that match, whatever the page."""

    output: Output


@dataclass(frozen=True, slots=True)
class Connection:
    """A page of rows with what surrounds it; ``Edges``, ``PageFact`` and ``Summary`` live only inside one.

    :ivar rows: ``where`` without the page's position; ``order`` in the forward direction.
    :ivar position: the position behind which the page begins, in the direction of paging
        (with reversed terms when the page is taken backward).
    :ivar backward: the page is the last rows of the order (``last``/``before``).
    """

    rows: Rows
    output: Object
    position: After | None = None
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Groups:
    """A list with an output of each group of the matching rows; lives only inside a connection.

    :ivar keys: what the rows are grouped and the groups ordered by.
    """

    keys: tuple[Expression, ...]
    having: Condition | None
    limit: Parameter | int
    output: Output


@dataclass(frozen=True, slots=True)
class Records:
    """The rows that a change affected; lives only inside a change's output."""

    output: Output


@dataclass(frozen=True, slots=True)
class AffectedCount:
    """How many rows a change affected; lives only inside a change's output."""


Output = (
    Text
    | Value
    | FunctionValue
    | FunctionValues
    | FunctionVoid
    | JsonText
    | Instant
    | NodeId
    | Cursor
    | Object
    | Record
    | Null
    | One
    | Many
    | PageFact
    | Edges
    | Summary
    | Connection
    | Groups
    | Records
    | AffectedCount
)
