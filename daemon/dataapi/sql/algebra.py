"""The algebra that GraphQL and REST requests compile to: expressions, rows, orders and conditions.

A front end turns a request into objects of the modules ``algebra``, ``outputs`` and ``mutations``. The other
modules of this package turn these objects into SQL. They contain only catalog objects, constants and
``Parameter``s. Values from a request are always bound through a ``Parameter``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from dataapi.database.sql_text import OWN_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.catalog.model import Function, Table, Type


# ---------------------------------------------------------------- values and expressions


class SlotSource(Protocol):
    """Reads a slot's value from a request, as text or None for NULL. Equal sources read the same value."""

    def bind(self, values: Any, /) -> str | None: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """A slot (``$n``) of a statement. Equal parameters share a slot.

    ``source`` reads the value when the statement is bound. ``type`` is the SQL type, or ``unknown`` to let
    PostgreSQL infer it at each use.
    """

    source: SlotSource
    type: str = "unknown"


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the current row."""

    name: str


@dataclass(frozen=True, slots=True)
class Cast:
    """An expression cast to another type.

    :ivar type: quoted and qualified SQL name of the type.
    """

    expression: Expression
    type: str


@dataclass(frozen=True, slots=True)
class FunctionExpression:
    """A function of one argument applied to an expression, such as a domain's conversion to JSON.

    :ivar function: quoted and qualified SQL name of the function.
    """

    function: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """A computed field: a function of the current row."""

    function: Function


@dataclass(frozen=True, slots=True)
class RelatedValue:
    """An expression over the row of a to-one relationship."""

    rows: Rows
    expression: Expression


@dataclass(frozen=True, slots=True)
class RelatedAggregate:
    """An aggregate over the rows of a to-many relationship. See ``Aggregate``."""

    rows: Rows
    function: AggregateFunction
    expression: Expression | None
    schema: str = OWN_SCHEMA


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A member of a JSON value, read with ``->`` and ``->>``. NULL if there is no such member.

    :ivar json: whether the expression is ``json`` or ``jsonb``. Other types are converted to ``jsonb`` first.
    :ivar steps: ``text`` parameters for object members, ``integer`` parameters for array indexes.
    :ivar as_text: whether the last step returns text (``->>``).
    """

    expression: Expression
    json: bool
    steps: tuple[Parameter, ...]
    as_text: bool


class JsonKind(Enum):
    """Kinds of JSON values that can be compared. The enum's value is the SQL type to compare as."""

    TEXT = "text"
    NUMBER = "numeric"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of a JSON value. NULL if it is missing or of another kind.

    :ivar path: a ``text[]`` parameter.
    """

    expression: Expression
    path: Parameter
    kind: JsonKind


class AggregateFunction(Enum):
    """An aggregate. The enum's value is the SQL function."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    EVERY = "bool_and"
    SOME = "bool_or"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of the current group. ``count(*)`` has no expression.

    ``schema`` is the schema of the function, because an extension's type may have its own aggregates.
    """

    function: AggregateFunction
    expression: Expression | None = None
    distinct: bool = False
    schema: str = OWN_SCHEMA


Expression = (
    ColumnRef
    | Cast
    | FunctionExpression
    | ComputedValue
    | RelatedValue
    | RelatedAggregate
    | JsonPath
    | JsonMember
    | Aggregate
)

# ---------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One term of an ``order by`` clause. ``schema`` is the schema of the comparison operators.

    :ivar nullable: whether the expression can be NULL. If not, ``nulls first`` and ``nulls last`` are
        omitted, so that a plain index serves both directions.
    """

    expression: Expression
    descending: bool = False
    nulls_first: bool = False
    nullable: bool = True
    schema: str = OWN_SCHEMA

    def reversed(self) -> OrderTerm:
        return replace(self, descending=not self.descending, nulls_first=not self.nulls_first)


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of equal columns: a column of the current row, and a column of the outer query's row.

    ``schemas`` are the schemas of the equality operators, empty if all operators are PostgreSQL's own.
    """

    pairs: tuple[tuple[str, str], ...]
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Through:
    """The junction table of a many-to-many relationship.

    ``near`` joins it to the row of the outer query, and ``far`` joins it to the related rows.
    """

    table: Table
    near: Join
    far: Join
    where: Condition | None = None


@dataclass(frozen=True, slots=True)
class CallArgument:
    """An argument of a function call.

    :ivar name: "" for the only argument of a function if that argument is unnamed.
    :ivar value: None for NULL, or for a member of ``FunctionCall.from_json``.
    :ivar composite: composite type to build from the value, which is JSON text. None for other types.
    :ivar variadic: whether the value is the array of a variadic function's last arguments.
    :ivar pairs: for a member of a JSON object, see ``JsonColumn.pairs``.
    :ivar cast: for a member of a JSON object, see ``JsonColumn.cast``.
    """

    name: str
    value: Parameter | None
    composite: Type | None = None
    variadic: bool = False
    pairs: str = ""
    cast: str = ""


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """A JSON object whose members are the arguments of a call.

    :ivar value: a ``json`` parameter.
    :ivar many: whether the value is an array of objects. Only its first object is used.
    :ivar members: name of each argument and the SQL type to read the member as.
    """

    value: Parameter
    many: bool
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function call, used as a value or as rows.

    :ivar of_row: whether the first argument is the row whose field or relationship the function computes.
    :ivar value_column: name of the only result column if the function returns single values, ``void`` or
        records without known columns. A NULL result is then a row too. "" if the rows have their own columns.
    :ivar from_json: JSON object to read values from for arguments whose own ``value`` is None.
    :ivar null_as_row: whether a NULL of a composite type counts as a row of NULLs instead of no row.
    """

    function: Function
    arguments: tuple[CallArgument, ...] = ()
    of_row: bool = False
    value_column: str = ""
    from_json: JsonArguments | None = None
    null_as_row: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, or of a function that returns rows of a table.

    :ivar table: None for a function with its own result columns.
    :ivar join: columns that relate these rows to the row of the outer query.
    :ivar through: junction table that relates these rows to the row of the outer query.
    :ivar stored_in: transaction setting to read the rows from, None to read the table or call the function.
    :ivar unique: whether at most one row can match, so that no limit is needed.
    """

    table: Table | None
    call: FunctionCall | None = None
    join: Join | None = None
    where: Condition | None = None
    order: tuple[OrderTerm, ...] = ()
    limit: Parameter | int | None = None
    offset: Parameter | None = None
    unique: bool = False
    stored_in: str | None = None
    through: Through | None = None


class Operator(Enum):
    """A comparison. The enum's value is the SQL operator."""

    EQ = "="
    NEQ = "<>"
    GT = ">"
    GTE = ">="
    LT = "<"
    LTE = "<="
    LIKE = "~~"
    ILIKE = "~~*"
    REGEX = "~"
    IREGEX = "~*"
    STARTS_WITH = "^@"
    CONTAINS = "@>"
    CONTAINED_BY = "<@"
    OVERLAPS = "&&"
    HAS_KEY = "?"
    IN = "= any"
    STRICTLY_LEFT = "<<"
    STRICTLY_RIGHT = ">>"
    NOT_RIGHT = "&<"
    NOT_LEFT = "&>"
    ADJACENT = "-|-"

    @property
    def symbol(self) -> str:
        return "=" if self is Operator.IN else self.value


class Quantifier(Enum):
    """Quantifier of a comparison with an array. The enum's value is the SQL keyword."""

    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Converted:
    """A value converted from text by a function, such as a domain's ``cast (text as …)``.

    ``parameter`` is of type ``text``, or ``text[]`` to convert the elements one by one.
    """

    function: str
    parameter: Parameter


@dataclass(frozen=True, slots=True)
class Compare:
    """``left operator right``. With a quantifier, ``right`` is an array.

    ``schema`` is the schema of the operator.
    """

    left: Expression
    operator: Operator
    right: Parameter | Converted
    schema: str = OWN_SCHEMA
    quantifier: Quantifier | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """``left is distinct from right``. The result is never NULL.

    ``schema`` is the schema of the operator ``=``.
    """

    left: Expression
    right: Parameter | Converted
    schema: str = OWN_SCHEMA


class Truth(Enum):
    """A boolean test. The enum's value is the SQL keyword."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Is:
    """``is true``, ``is false`` or ``is unknown``."""

    left: Expression
    truth: Truth


class SearchSyntax(Enum):
    """The syntax of a full-text search. The enum's value is the PostgreSQL function that parses it."""

    PLAIN = "plainto_tsquery"
    PHRASE = "phraseto_tsquery"
    WEB = "websearch_to_tsquery"
    TSQUERY = "to_tsquery"


@dataclass(frozen=True, slots=True)
class TextSearch:
    """Full-text search in an expression. ``language`` is a ``regconfig``, None for the database's default.

    ``vector`` is true if the expression is a ``tsvector``.
    """

    left: Expression
    query: Parameter
    language: Parameter | None = None
    syntax: SearchSyntax = SearchSyntax.WEB
    vector: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """``is null``, or ``is not null`` when negated."""

    left: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of conditions, true if there are none."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of conditions, false if there are none."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class NotTrue:
    """Whether a condition is false or unknown."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Exists:
    """``exists`` over rows, such as related rows, after their LIMIT and OFFSET."""

    rows: Rows


@dataclass(frozen=True, slots=True)
class After:
    """Rows strictly after a position (keyset pagination) that has one value per order term.

    ``inclusive_before`` matches the complement: rows up to and including the position.
    """

    order: tuple[OrderTerm, ...]
    values: tuple[Parameter | None, ...]
    inclusive_before: bool = False

    def complement(self) -> After:
        return After(self.order, self.values, not self.inclusive_before)


Condition = Compare | Distinct | Is | TextSearch | IsNull | And | Or | Not | NotTrue | Exists | After


def all_of(conditions: Sequence[Condition]) -> Condition | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))
