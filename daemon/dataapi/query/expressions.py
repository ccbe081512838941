"""SQL of expressions, conditions, orders and row sources."""

from __future__ import annotations

from collections.abc import Sequence

from dataapi.database.quoting import quote_identifier, quote_literal
from dataapi.query.algebra import (
    After,
    AggregateFunction,
    AggregateOf,
    And,
    Call,
    CastOf,
    ColumnOf,
    Compare,
    ComputedOf,
    Condition,
    Exists,
    Expression,
    IsNull,
    JsonbOf,
    JsonKind,
    JsonMemberOf,
    Not,
    NotTrue,
    Operator,
    Or,
    OrderTerm,
    Parameter,
    RelatedAggregateOf,
    RelatedOf,
    Rows,
    TextSearch,
)
from dataapi.query.writer import Row, Writer, qualified


def expression_sql(writer: Writer, expression: Expression, row: Row) -> str:
    """Return the SQL of an expression over a row."""
    match expression:
        case ColumnOf(name):
            return row.column(name)
        case CastOf(inner, type_):
            return f"({expression_sql(writer, inner, row)})::{type_}"
        case ComputedOf(function):
            return f"{qualified(function)}({row.whole()})"
        case JsonbOf(inner):
            return f"({expression_sql(writer, inner, row)})::jsonb"
        case JsonMemberOf(inner, path, kind):
            return _json_member_sql(expression_sql(writer, inner, row), writer.slot(path), kind)
        case AggregateOf(function, operand, distinct, builtin):
            argument = "*" if operand is None else expression_sql(writer, operand, row)
            name = aggregate_sql(function, builtin)
            return f"{name}({'distinct ' if distinct else ''}{argument})"
        case RelatedOf(rows, inner):
            related = Row(writer.alias())
            source = source_sql(writer, rows, related, row)
            return f"(select {expression_sql(writer, inner, related)} from {source} limit 1)"
        case RelatedAggregateOf(rows, function, operand, builtin):
            related = Row(writer.alias())
            source = source_sql(writer, rows, related, row)
            argument = "*" if operand is None else expression_sql(writer, operand, related)
            return f"(select {aggregate_sql(function, builtin)}({argument}) from {source})"


def operator_sql(operator: str, builtin: bool) -> str:
    """Return an operator; a built-in one by its schema.

    PostgreSQL takes the operator (and the function) whose argument types fit best from all schemas
    of the search path, so that whoever may create one there could have it run by other roles.
    """
    return f"operator(pg_catalog.{operator})" if builtin else operator


def aggregate_sql(function: AggregateFunction, builtin: bool) -> str:
    """Return an aggregate's name; see ``operator_sql``."""
    return f"pg_catalog.{function.value}" if builtin else function.value


def is_builtin(type_: str) -> bool:
    """Whether a slot's type is PostgreSQL's own."""
    return type_.startswith("pg_catalog.")


def _json_member_sql(value: str, path: str, kind: JsonKind) -> str:
    member = f"({value} #>> {path})"
    if kind is JsonKind.TEXT:
        return member
    word = "number" if kind is JsonKind.NUMBER else "boolean"
    type_ = f"pg_catalog.jsonb_typeof({value} #> {path})"
    return f"(case when {type_} = '{word}' then {member}::{kind.value} end)"


def condition_sql(writer: Writer, condition: Condition, row: Row) -> str:
    """Return the SQL of a condition over a row, safe to stand beside ``and`` and ``or``."""
    match condition:
        case Compare(left, Operator.IN, right, builtin):
            return (
                f"{expression_sql(writer, left, row)} {operator_sql('=', builtin)} any({writer.slot(right)})"
            )
        case Compare(left, operator, right, builtin):
            word = operator_sql(operator.value, builtin)
            return f"{expression_sql(writer, left, row)} {word} {writer.slot(right)}"
        case TextSearch(left, query, language):
            text = expression_sql(writer, left, row)
            configuration = "" if language is None else f"{writer.slot(language)}, "
            words = f"pg_catalog.websearch_to_tsquery({configuration}{writer.slot(query)})"
            return f"pg_catalog.to_tsvector({configuration}{text}) @@ {words}"
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
            source = source_sql(writer, rows, Row(writer.alias()), row)
            return f"exists (select 1 from {source})"
        case After(order, values, inclusive_before):
            after = _after_sql(writer, order, values, row)
            return f"({after}) is not true" if inclusive_before else after


def _joined(writer: Writer, conditions: Sequence[Condition], row: Row, word: str, empty: str) -> str:
    if not conditions:
        return empty
    parts = [condition_sql(writer, condition, row) for condition in conditions]
    return parts[0] if len(parts) == 1 else "(" + word.join(parts) + ")"


def _after_sql(
    writer: Writer, order: Sequence[OrderTerm], values: Sequence[Parameter | None], row: Row
) -> str:
    """Return the keyset condition of a position.

    Where every term ascends (or every one descends) and none can be null, it is one row
    comparison, which an index serves as a whole; else it is spelled out term by term.
    """
    expressions = [expression_sql(writer, term.expression, row) for term in order]
    slots = [None if value is None else writer.slot(value) for value in values]
    directions = {term.descending for term in order}
    if len(directions) == 1 and not any(term.nullable for term in order) and None not in slots:
        builtin = all(value is not None and is_builtin(value.type) for value in values)
        operator = operator_sql("<" if directions.pop() else ">", builtin)
        if len(order) == 1:
            return f"{expressions[0]} {operator} {slots[0]}"
        return f"({', '.join(expressions)}) {operator} ({', '.join(slot or '' for slot in slots)})"
    alternatives: list[str] = []
    equal: list[str] = []
    for term, expression, slot, value in zip(order, expressions, slots, values, strict=True):
        builtin = value is not None and is_builtin(value.type)
        beyond = _beyond(term, expression, slot, builtin)
        if beyond is not None:
            alternatives.append("(" + " and ".join([*equal, beyond]) + ")")
        is_equal = f"{expression} {operator_sql('=', builtin)} {slot}"
        equal.append(f"{expression} is null" if slot is None else is_equal)
    return "(" + " or ".join(alternatives) + ")" if alternatives else "false"


def _beyond(term: OrderTerm, expression: str, slot: str | None, builtin: bool) -> str | None:
    """Return the condition that one term lies strictly beyond a value, None when nothing can."""
    if slot is None:
        return f"{expression} is not null" if term.nulls_first else None
    beyond = f"{expression} {operator_sql('<' if term.descending else '>', builtin)} {slot}"
    if term.nullable and not term.nulls_first:
        return f"({beyond} or {expression} is null)"
    return beyond


def order_sql(writer: Writer, order: Sequence[OrderTerm], row: Row) -> str:
    """Return an ``order by`` clause with its leading blank, empty for no order."""
    if not order:
        return ""
    terms = []
    for term in order:
        sql = expression_sql(writer, term.expression, row)
        if term.descending:
            sql += " desc"
        if term.nullable:
            sql += " nulls first" if term.nulls_first else " nulls last"
        terms.append(sql)
    return " order by " + ", ".join(terms)


def call_sql(writer: Writer, call: Call, parent: Row | None) -> str:
    """Return a function call with its arguments, by name where they have one."""
    arguments = [parent.whole()] if call.of_row and parent is not None else []
    for argument in call.arguments:
        value = "null" if argument.value is None else writer.slot(argument.value)
        if argument.composite is not None and argument.value is not None:
            value = f"pg_catalog.json_populate_record(null::{qualified(argument.composite)}, {value})"
        arguments.append(f"{quote_identifier(argument.name)} => {value}")
    return f"{qualified(call.function)}({', '.join(arguments)})"


def relation_sql(writer: Writer, rows: Rows, row: Row, parent: Row | None) -> str:
    """Return the ``from`` item of the rows, aliased as the row."""
    if rows.call is not None:
        return f"{call_sql(writer, rows.call, parent)} as {row.alias}"
    assert rows.table is not None, "rows are of a table or of a call"
    if rows.kept is not None:
        kept = f"pg_catalog.current_setting({quote_literal(rows.kept)})"
        return f"pg_catalog.unnest({kept}::{qualified(rows.table)}[]) as {row.alias}"
    return f"{qualified(rows.table)} as {row.alias}"


def source_sql(
    writer: Writer,
    rows: Rows,
    row: Row,
    parent: Row | None,
    *extra: Condition | None,
) -> str:
    """Return the ``from`` item and the ``where`` clause of the rows, with extra conditions."""
    source = relation_sql(writer, rows, row, parent)
    conditions = []
    if rows.join is not None:
        assert parent is not None, "a join needs the row it joins to"
        conditions += [f"{row.column(own)} = {parent.column(theirs)}" for own, theirs in rows.join.pairs]
    if rows.call is not None and not rows.call.function.returns_set:
        # A function of a composite result that returns NULL gives one row of nulls.
        conditions.append(f"not ({row.alias} is null)")
    for condition in (rows.where, *extra):
        if condition is not None:
            conditions.append(condition_sql(writer, condition, row))
    return f"{source} where {' and '.join(conditions)}" if conditions else source
