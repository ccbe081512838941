"""SQL of comparisons: texts made of operands that are SQL already."""

from __future__ import annotations

from collections.abc import Sequence

from dataapi.query.algebra import AggregateFunction, JsonKind, OrderTerm, Parameter
from dataapi.query.conditions import Converted, Operator, Quantifier, TextSearch
from dataapi.query.writer import Writer


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


def compare_sql(
    writer: Writer,
    left: str,
    operator: Operator,
    right: Parameter | Converted,
    *,
    builtin: bool,
    quantifier: Quantifier | None,
) -> str:
    """Return the comparison of an expression with a value, or with the values of an array."""
    if operator is Operator.IN:
        operator, quantifier = Operator.EQ, Quantifier.ANY
    word = operator_sql(operator.value, builtin)
    if quantifier is None:
        return f"{left} {word} {value_sql(writer, right)}"
    return f"{left} {word} {quantifier.value}({_values_sql(writer, right)})"


def value_sql(writer: Writer, value: Parameter | Converted) -> str:
    """Return the SQL of one value."""
    if isinstance(value, Converted):
        return f"{value.function}({writer.slot(value.parameter)})"
    return writer.slot(value)


def _values_sql(writer: Writer, values: Parameter | Converted) -> str:
    """Return the SQL of an array of values."""
    if not isinstance(values, Converted):
        return writer.slot(values)
    alias = writer.alias()
    texts = f"pg_catalog.unnest({writer.slot(values.parameter)}) as {alias}(value)"
    return f"array(select {values.function}({alias}.value) from {texts})"


def search_sql(writer: Writer, left: str, search: TextSearch) -> str:
    """Return the full-text search of an expression."""
    configuration = "" if search.language is None else f"{writer.slot(search.language)}, "
    words = f"pg_catalog.{search.parser.value}({configuration}{writer.slot(search.query)})"
    vector = left if search.vector else f"pg_catalog.to_tsvector({configuration}{left})"
    return f"{vector} {operator_sql('@@', True)} {words}"


def json_member_sql(value: str, path: str, kind: JsonKind) -> str:
    """Return the member of a ``jsonb`` value as another type, NULL where it is of another kind."""
    member = f"({value} #>> {path})"
    if kind is JsonKind.TEXT:
        return member
    word = "number" if kind is JsonKind.NUMBER else "boolean"
    type_ = f"pg_catalog.jsonb_typeof({value} #> {path})"
    return f"(case when {type_} = '{word}' then {member}::{kind.value} end)"


def json_path_sql(value: str, steps: Sequence[str], *, as_text: bool) -> str:
    """Return the member of a JSON value that steps lead to."""
    arrows = [operator_sql("->", True)] * len(steps)
    if as_text:
        arrows[-1:] = [operator_sql("->>", True)]
    path = "".join(f" {arrow} {step}" for arrow, step in zip(arrows, steps, strict=True))
    return f"({value}{path})"


def after_sql(
    writer: Writer,
    order: Sequence[OrderTerm],
    expressions: Sequence[str],
    values: Sequence[Parameter | None],
) -> str:
    """Return the keyset condition of a position, ``expressions`` being the SQL of the order's terms.

    Where every term ascends (or every one descends) and none can be null, it is one row
    comparison, which an index serves as a whole; else it is spelled out term by term.
    """
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
