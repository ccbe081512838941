"""The conditions of the algebra: which rows count."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dataapi.database.sql_text import OWN_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.sql.algebra import Expression, OrderTerm, Parameter, Rows


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
