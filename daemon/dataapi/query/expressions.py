"""SQL of expressions, conditions, orders and row sources."""

from __future__ import annotations

from collections.abc import Sequence

from dataapi.query.algebra import (
    AggregateOf,
    CastOf,
    ColumnOf,
    ComputedOf,
    Expression,
    FunctionOf,
    JsonbOf,
    JsonMemberOf,
    JsonPathOf,
    OrderTerm,
    Parameter,
    RelatedAggregateOf,
    RelatedOf,
    Rows,
)
from dataapi.query.comparisons import (
    after_sql,
    aggregate_sql,
    compare_sql,
    json_member_sql,
    json_path_sql,
    search_sql,
    value_sql,
)
from dataapi.query.conditions import (
    After,
    And,
    Compare,
    Condition,
    Distinct,
    Exists,
    Is,
    IsNull,
    Not,
    NotTrue,
    Or,
    TextSearch,
)
from dataapi.query.relations import relation_sql
from dataapi.query.writer import Row, Writer


def expression_sql(writer: Writer, expression: Expression, row: Row) -> str:
    """Return the SQL of an expression over a row."""
    match expression:
        case ColumnOf(name):
            return row.column(name)
        case CastOf(inner, type_):
            return f"({expression_sql(writer, inner, row)})::{type_}"
        case ComputedOf(function):
            return f"{writer.function(function)}({row.whole()})"
        case JsonbOf(inner):
            return f"({expression_sql(writer, inner, row)})::jsonb"
        case FunctionOf(function, inner):
            return f"{function}({expression_sql(writer, inner, row)})"
        case JsonPathOf(inner, json, steps, as_text):
            value = expression_sql(writer, inner, row)
            document = value if json else f"pg_catalog.to_jsonb({value})"
            return json_path_sql(document, [writer.slot(step) for step in steps], as_text=as_text)
        case JsonMemberOf(inner, path, kind):
            return json_member_sql(expression_sql(writer, inner, row), writer.slot(path), kind)
        case AggregateOf(function, operand, distinct, builtin):
            argument = "*" if operand is None else expression_sql(writer, operand, row)
            name = aggregate_sql(function, builtin)
            return f"{name}({'distinct ' if distinct else ''}{argument})"
        case RelatedOf(rows, inner):
            related = Row(writer.alias())
            source = source_sql(writer, rows, related, row)
            return f"(select {expression_sql(writer, inner, related)} from {source}{one_sql(writer, rows)})"
        case RelatedAggregateOf(rows, function, operand, builtin):
            related = Row(writer.alias())
            source = source_sql(writer, rows, related, row)
            argument = "*" if operand is None else expression_sql(writer, operand, related)
            return f"(select {aggregate_sql(function, builtin)}({argument}) from {source})"


def condition_sql(writer: Writer, condition: Condition, row: Row) -> str:
    """Return the SQL of a condition over a row, safe to stand beside ``and`` and ``or``."""
    match condition:
        case Compare(left, operator, right, builtin, quantifier):
            value = expression_sql(writer, left, row)
            return compare_sql(writer, value, operator, right, builtin=builtin, quantifier=quantifier)
        case Distinct(left, right):
            return f"{expression_sql(writer, left, row)} is distinct from {value_sql(writer, right)}"
        case Is(left, truth):
            return f"{expression_sql(writer, left, row)} is {truth.value}"
        case TextSearch():
            return search_sql(writer, expression_sql(writer, condition.left, row), condition)
        case IsNull(left, negated):
            return f"{expression_sql(writer, left, row)} is {'not ' if negated else ''}null"
        case And(conditions):
            return _joined(writer, conditions, row, " and ", "true")
        case Or(conditions):
            return _joined(writer, conditions, row, " or ", "false")
        case Not(inner):
            return f"not ({condition_sql(writer, inner, row)})"
        case NotTrue(inner):
            return f"({condition_sql(writer, inner, row)}) is not true"
        case Exists(rows):
            apart = "" if writer.joinable() else " offset 0"  # which PostgreSQL does not rewrite
            source = source_sql(writer, rows, Row(writer.alias()), row)
            skipped = apart if rows.offset is None else f" offset {writer.slot(rows.offset)}"
            exists = f"exists (select 1 from {source}{skipped})"
            if isinstance(rows.limit, Parameter):  # not within, where it would keep PostgreSQL from joining
                return f"({writer.slot(rows.limit)} > 0 and {exists})"
            return exists
        case After(order, values, inclusive_before):
            terms = [expression_sql(writer, term.expression, row) for term in order]
            after = after_sql(writer, order, terms, values)
            return f"({after}) is not true" if inclusive_before else after


def _joined(writer: Writer, conditions: Sequence[Condition], row: Row, word: str, empty: str) -> str:
    if not conditions:
        return empty
    parts = [condition_sql(writer, condition, row) for condition in conditions]
    return parts[0] if len(parts) == 1 else "(" + word.join(parts) + ")"


def order_sql(writer: Writer, order: Sequence[OrderTerm], row: Row) -> str:
    """Return an ``order by`` clause with its leading blank, empty for no order."""
    if not order:
        return ""
    terms = [term_sql(expression_sql(writer, term.expression, row), term) for term in order]
    return " order by " + ", ".join(terms)


def term_sql(sql: str, term: OrderTerm) -> str:
    """Return a term of an ``order by`` clause over the SQL of its expression."""
    direction = " desc" if term.descending else ""
    if not term.nullable:
        return sql + direction
    return sql + direction + (" nulls first" if term.nulls_first else " nulls last")


def limit_sql(writer: Writer, rows: Rows, extra: int = 0) -> str:
    """Return the ``limit`` and ``offset`` clauses with their leading blank.

    :param extra: how many rows to take beyond the limit.
    """
    sql = ""
    if rows.limit is not None:
        sql += f" limit {count_sql(writer, rows.limit)}" + (f" + {extra}" if extra else "")
    if rows.offset is not None:
        sql += f" offset {writer.slot(rows.offset)}"
    return sql


def one_sql(writer: Writer, rows: Rows) -> str:
    """Return the clauses that leave at most one row, such as that of the rows' own limit of one."""
    return limit_sql(writer, rows) or " limit 1"


def count_sql(writer: Writer, count: Parameter | int) -> str:
    """Return a number of rows."""
    return writer.slot(count) if isinstance(count, Parameter) else str(count)


def source_sql(
    writer: Writer,
    rows: Rows,
    row: Row,
    parent: Row | None,
    *extra: Condition | None,
    relation: str | None = None,
) -> str:
    """Return the ``from`` item and the ``where`` clause of the rows, with extra conditions.

    :param relation: where the rows are found instead, aliased as the row.
    """
    source, conditions = source_parts(writer, rows, row, parent, *extra, relation=relation)
    return f"{source} where {conditions}" if conditions else source


def source_parts(
    writer: Writer,
    rows: Rows,
    row: Row,
    parent: Row | None,
    *extra: Condition | None,
    relation: str | None = None,
) -> tuple[str, str]:
    """Return the ``from`` item of the rows and their conditions, empty for none; as of ``source_sql``."""
    source = relation_sql(writer, rows, row, parent) if relation is None else relation
    conditions = []
    if rows.join is not None:
        assert parent is not None, "a join needs the row it joins to"
        conditions += [f"{row.column(own)} = {parent.column(theirs)}" for own, theirs in rows.join.pairs]
    call = rows.call
    if call is not None and not (call.scalar or call.keeps_null or call.function.returns_set):
        # A function of a composite result that returns NULL gives one row of nulls.
        conditions.append(f"not ({row.alias} is null)")
    for condition in (rows.where, *extra):
        if condition is not None:
            conditions.append(condition_sql(writer, condition, row))
    return source, " and ".join(conditions)
