"""The algebra that both APIs compile to: expressions, which rows in which order, and the conditions on them.

A front end (GraphQL, REST) turns a request into these values, ``outputs`` and ``mutations``;
the other modules turn them into SQL.  They hold catalog objects, fixed words and
``Parameter``s; a value of a request appears only behind a ``Parameter``, whose source finds it when
the statement is bound.
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
    """Where a front end finds the value of a slot; equal sources find the same value."""

    def bind(self, values: Any, /) -> str | None:
        """Return the value as text, None for NULL.

        :param values: those of one request, in the front end's own form.
        """

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """A slot of the statement.

    :ivar source: where the value is found when the statement is bound; equal parameters share a slot.
    :ivar type: the slot's SQL type as text, ``unknown`` to let PostgreSQL infer it at each place.
    """

    source: SlotSource
    type: str = "unknown"


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column of the current row."""

    name: str


@dataclass(frozen=True, slots=True)
class CastOf:
    """An expression as another type.

    :ivar type: the type's SQL name, quoted and qualified.
    """

    expression: Expression
    type: str


@dataclass(frozen=True, slots=True)
class FunctionOf:
    """An expression passed through a function of one argument, such as a domain's representation.

    :ivar function: the function's SQL name, quoted and qualified.
    """

    function: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class ComputedOf:
    """A computed field: a function of the current row."""

    function: Function


@dataclass(frozen=True, slots=True)
class RelatedOf:
    """An expression over the one row that a to-one relationship leads to."""

    rows: Rows
    expression: Expression


@dataclass(frozen=True, slots=True)
class RelatedAggregateOf:
    """An aggregate over the rows that a to-many relationship leads to.

    :ivar expression: None for ``count(*)``.
    :ivar schema: as of ``AggregateOf``.
    """

    rows: Rows
    function: AggregateFunction
    expression: Expression | None
    schema: str = OWN_SCHEMA


@dataclass(frozen=True, slots=True)
class JsonPathOf:
    """A member of a JSON value as ``->`` and ``->>`` find it; NULL where there is none.

    :ivar expression: of any type; what is neither ``json`` nor ``jsonb`` is made ``jsonb`` first.
    :ivar json: whether the expression is ``json`` or ``jsonb`` already.
    :ivar steps: ``text`` parameters for members, ``integer`` ones for places in arrays.
    :ivar as_text: whether the last step gives text (``->>``).
    """

    expression: Expression
    json: bool
    steps: tuple[Parameter, ...]
    as_text: bool


class JsonKind(Enum):
    """What a member of a JSON value is compared as; its value is the SQL type."""

    TEXT = "text"
    NUMBER = "numeric"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class JsonMemberOf:
    """A member of a JSON value; NULL where there is none, or one of another kind.

    :ivar path: a ``text[]`` parameter.
    """

    expression: Expression
    path: Parameter
    kind: JsonKind


class AggregateFunction(Enum):
    """An aggregate; its value is the SQL function."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    EVERY = "bool_and"
    SOME = "bool_or"


@dataclass(frozen=True, slots=True)
class AggregateOf:
    """An aggregate over the rows of the group in scope; ``count(*)`` without an expression.

    :ivar schema: that of the aggregate; a type that is not PostgreSQL's may bring its own.
    """

    function: AggregateFunction
    expression: Expression | None = None
    distinct: bool = False
    schema: str = OWN_SCHEMA


Expression = (
    ColumnOf
    | CastOf
    | FunctionOf
    | ComputedOf
    | RelatedOf
    | RelatedAggregateOf
    | JsonPathOf
    | JsonMemberOf
    | AggregateOf
)

# ---------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One term of an order.

    :ivar nullable: whether the expression can be NULL; if not, ``nulls_first`` is of no
        effect and left out of the SQL, so that plain indexes serve both directions.
    :ivar schema: that of the operators that compare its values.
    """

    expression: Expression
    descending: bool = False
    nulls_first: bool = False
    nullable: bool = True
    schema: str = OWN_SCHEMA

    def reversed(self) -> OrderTerm:
        """Return the term of the opposite order."""
        return replace(self, descending=not self.descending, nulls_first=not self.nulls_first)


@dataclass(frozen=True, slots=True)
class Join:
    """Equality of columns of the current row with columns of the enclosing one.

    :ivar schemas: those of the pairs' operators; none where all are PostgreSQL's own.
    """

    pairs: tuple[tuple[str, str], ...]
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Through:
    """The junction table of a many-to-many relationship.

    :ivar near: equality of columns of the junction table with columns of the enclosing row.
    :ivar far: equality of columns of the junction table with columns of the current row.
    :ivar where: a condition on rows of the junction table.
    """

    table: Table
    near: Join
    far: Join
    where: Condition | None = None


@dataclass(frozen=True, slots=True)
class CallArgument:
    """An argument of a call.

    :ivar name: "" for the argument of a function that has a single unnamed one.
    :ivar value: None for NULL.
    :ivar composite: the composite type that the value, JSON text, is made into; None for other types.
    :ivar variadic: the value is an array of a variadic function's last arguments.
    :ivar pairs, cast: of a member of a JSON object, as of ``JsonColumn``.
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
    :ivar many: whether it is an array of objects, of which the first one counts.
    :ivar members: each argument's name, with the SQL type that the member is read as.
    """

    value: Parameter
    many: bool
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function, as a value or as rows.

    :ivar of_row: pass the enclosing row first (computed fields and relationships).
    :ivar value_column: as rows, its results are single values (also ``void``, and records without known
        columns) in one column of this name, and a NULL is a row too; "" for rows with columns of their own.
    :ivar from_json: the source of arguments that have a name and no value.
    :ivar keeps_null: a NULL of a composite type counts as a row of NULLs instead of as no row.
    """

    function: Function
    arguments: tuple[CallArgument, ...] = ()
    of_row: bool = False
    value_column: str = ""
    from_json: JsonArguments | None = None
    keeps_null: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, or of a function that returns rows of it.

    :ivar table: what the rows are of; None for a function of its own result columns.
    :ivar call: the function to call instead of reading the table.
    :ivar through: a junction table, instead of ``join``.
    :ivar stored_in: the setting of the transaction to take the rows from instead.
    :ivar unique: at most one row can match, so that no limit is needed.
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
    """A comparison; its value is the SQL operator."""

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
        """The operator itself; several values are compared one by one."""
        return "=" if self is Operator.IN else self.value


class Quantifier(Enum):
    """How a comparison with an array of values is meant; its value is the SQL word."""

    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Converted:
    """A value made by a function of its text, such as a domain's ``cast (text as …)``.

    :ivar function: the function's SQL name, quoted and qualified.
    :ivar parameter: a ``text`` parameter, or a ``text[]`` one of values that are converted one by one.
    """

    function: str
    parameter: Parameter


@dataclass(frozen=True, slots=True)
class Compare:
    """``left operator right``.

    :ivar schema: that of the operator.
    :ivar quantifier: compare with any, or with all, of the values of an array.
    """

    left: Expression
    operator: Operator
    right: Parameter | Converted
    schema: str = OWN_SCHEMA
    quantifier: Quantifier | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """``left is distinct from right``, which is never NULL.

    :ivar schema: that of the operator ``=``.
    """

    left: Expression
    right: Parameter | Converted
    schema: str = OWN_SCHEMA


class Truth(Enum):
    """What a boolean is tested for; its value is the SQL word."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Is:
    """``is true``, ``is false`` or ``is unknown``."""

    left: Expression
    truth: Truth


class SearchSyntax(Enum):
    """The syntax of a full-text search; its value is the function of PostgreSQL that reads it."""

    PLAIN = "plainto_tsquery"
    PHRASE = "phraseto_tsquery"
    WEB = "websearch_to_tsquery"
    TSQUERY = "to_tsquery"


@dataclass(frozen=True, slots=True)
class TextSearch:
    """Full-text search of an expression.

    :ivar language: a ``regconfig`` parameter, None for the database's default.
    :ivar vector: whether the expression is a ``tsvector`` already.
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
    """All of them; true when empty."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them; false when empty."""

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
    """Whether rows exist, such as related ones, within their window."""

    rows: Rows


@dataclass(frozen=True, slots=True)
class After:
    """The rows that come strictly after a position in an order (keyset pagination).

    :ivar values: one per term; None where the position's value is NULL.
    :ivar inclusive_before: the complement instead: the rows up to and with the position.
    """

    order: tuple[OrderTerm, ...]
    values: tuple[Parameter | None, ...]
    inclusive_before: bool = False

    def complement(self) -> After:
        """Return the condition of all other rows."""
        return After(self.order, self.values, not self.inclusive_before)


Condition = Compare | Distinct | Is | TextSearch | IsNull | And | Or | Not | NotTrue | Exists | After


def all_of(conditions: Sequence[Condition]) -> Condition | None:
    """Return the conjunction of conditions, None without any."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))
