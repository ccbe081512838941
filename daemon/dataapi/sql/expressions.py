"""SQL for expressions, conditions, orders, limits and ``from`` items.

Each clause starts with a space, and is "" if it is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataapi.database.sql_text import (
    EQUAL,
    GREATER,
    OWN_SCHEMA,
    PLUS,
    operator_sql,
    quote_identifier,
    quote_literal,
)
from dataapi.sql.algebra import (
    After,
    Aggregate,
    And,
    CallArgument,
    Cast,
    ColumnRef,
    Compare,
    ComputedValue,
    Condition,
    Converted,
    Distinct,
    Exists,
    Expression,
    FunctionCall,
    FunctionExpression,
    Is,
    IsNull,
    Join,
    JsonArguments,
    JsonKind,
    JsonMember,
    JsonPath,
    Not,
    NotTrue,
    Operator,
    Or,
    OrderTerm,
    Parameter,
    Quantifier,
    RelatedAggregate,
    RelatedValue,
    Rows,
    TextSearch,
)
from dataapi.sql.statement import Row, Writer, qualified


def expression_sql(writer: Writer, expression: Expression, row: Row) -> str:
    match expression:
        case ColumnRef(name):
            return row.column(name)
        case Cast(inner, type_):
            return f"({expression_sql(writer, inner, row)})::{type_}"
        case ComputedValue(function):
            return f"{writer.function(function)}({row.whole()})"
        case FunctionExpression(function, inner):
            return f"{function}({expression_sql(writer, inner, row)})"
        case JsonPath(inner, json, steps, as_text):
            value = expression_sql(writer, inner, row)
            document = value if json else f"pg_catalog.to_jsonb({value})"
            arrows = [*["->"] * (len(steps) - 1), "->>" if as_text else "->"]
            for arrow, step in zip(arrows, steps, strict=True):
                document += f" {operator_sql(arrow)} {writer.slot(step)}"
            return f"({document})"
        case JsonMember(inner, path, kind):
            value, path_slot = expression_sql(writer, inner, row), writer.slot(path)
            member = f"({value} {operator_sql('#>>')} {path_slot})"
            if kind is JsonKind.TEXT:
                return member
            word = "number" if kind is JsonKind.NUMBER else "boolean"
            type_ = f"pg_catalog.jsonb_typeof({value} {operator_sql('#>')} {path_slot})"
            return f"(case when {type_} {EQUAL} '{word}' then {member}::{kind.value} end)"
        case Aggregate(function, operand, distinct, schema):
            argument = "*" if operand is None else expression_sql(writer, operand, row)
            prefix = schema if schema == OWN_SCHEMA else quote_identifier(schema)
            return f"{prefix}.{function.value}({'distinct ' if distinct else ''}{argument})"
        case RelatedValue(rows, inner):
            related = Row(writer.alias())
            source = source_sql(writer, rows, related, row)
            return f"(select {expression_sql(writer, inner, related)} from {source}{one_sql(writer, rows)})"
        case RelatedAggregate(rows, function, operand, schema):
            related = Row(writer.alias())
            source = source_sql(writer, rows, related, row)
            aggregate = Aggregate(function, operand, schema=schema)
            return f"(select {expression_sql(writer, aggregate, related)} from {source})"


def condition_sql(writer: Writer, condition: Condition, row: Row) -> str:
    match condition:
        case Compare():
            return _compare_sql(writer, condition, row)
        case Distinct(left, right, schema):
            # ``is distinct from`` looks up its operator in the search path.
            one, other = expression_sql(writer, left, row), _value_sql(writer, right)
            equal = f"{one} {operator_sql('=', schema)} {other}"
            return f"(not coalesce({equal}, {one} is null and {other} is null))"
        case Is(left, truth):
            return f"{expression_sql(writer, left, row)} is {truth.value}"
        case TextSearch():
            return _search_sql(writer, condition, row)
        case IsNull(left, negated):
            return f"{expression_sql(writer, left, row)} is {'not ' if negated else ''}null"
        case And(conditions) | Or(conditions):
            parts = [condition_sql(writer, each, row) for each in conditions]
            word, empty = ("and", "true") if isinstance(condition, And) else ("or", "false")
            if len(parts) < 2:
                return parts[0] if parts else empty
            return f"({f' {word} '.join(parts)})"
        case Not(inner):
            return f"not ({condition_sql(writer, inner, row)})"
        case NotTrue(inner):
            return f"({condition_sql(writer, inner, row)}) is not true"
        case Exists(rows):
            # PostgreSQL does not turn EXISTS with an offset into a join.
            fence = "" if writer.joinable() else " offset 0"
            source = source_sql(writer, rows, Row(writer.alias()), row)
            skipped = fence if rows.offset is None else f" offset {writer.slot(rows.offset)}"
            exists = f"exists (select 1 from {source}{skipped})"
            if isinstance(rows.limit, Parameter):  # A limit in the subquery would prevent a join.
                return f"({writer.slot(rows.limit)} {GREATER} 0 and {exists})"
            return exists
        case After():
            after = _after_sql(writer, condition, row)
            return f"({after}) is not true" if condition.inclusive_before else after


def order_sql(writer: Writer, order: Sequence[OrderTerm], row: Row) -> str:
    if not order:
        return ""
    terms = [term_sql(expression_sql(writer, term.expression, row), term) for term in order]
    return " order by " + ", ".join(terms)


def term_sql(sql: str, term: OrderTerm) -> str:
    direction = " desc" if term.descending else ""
    if not term.nullable:
        return sql + direction
    return sql + direction + (" nulls first" if term.nulls_first else " nulls last")


def limit_sql(writer: Writer, rows: Rows, extra: int = 0) -> str:
    sql = ""
    if rows.limit is not None:
        sql += f" limit {count_sql(writer, rows.limit)}" + (f" {PLUS} {extra}" if extra else "")
    return sql if rows.offset is None else f"{sql} offset {writer.slot(rows.offset)}"


def one_sql(writer: Writer, rows: Rows) -> str:
    return limit_sql(writer, rows) or " limit 1"


def count_sql(writer: Writer, count: Parameter | int) -> str:
    return writer.limit(count) if isinstance(count, Parameter) else str(count)


def source_sql(
    writer: Writer,
    rows: Rows,
    row: Row,
    parent: Row | None,
    *extra: Condition | None,
    relation: str | None = None,
) -> str:
    """Return the ``from`` item and ``where`` clause of rows.

    :param relation: ``from`` item to use instead of the rows' table or function. It has the row's alias.
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
    row.value = writer.dialect.whole_row(rows, row)
    source = _relation_sql(writer, rows, row, parent) if relation is None else relation
    conditions = []
    if rows.join is not None:
        assert parent is not None, "a join needs a row of the outer query"
        conditions += _equalities(rows.join, row, parent)
    call = rows.call
    if call is not None and not (call.value_column or call.null_as_row or call.function.returns_set):
        # If a function with a composite result returns NULL, PostgreSQL makes it a row of NULLs.
        conditions.append(f"not ({row.alias} is null)")
    for condition in (rows.where, *extra):
        if condition is not None:
            conditions.append(condition_sql(writer, condition, row))
    return source, " and ".join(conditions)


# ---------------------------------------------------------------- operators


def _equalities(join: Join, row: Row, other: Row) -> list[str]:
    schemas = join.schemas or (OWN_SCHEMA,) * len(join.pairs)
    return [
        f"{row.column(own)} {operator_sql('=', schema)} {other.column(theirs)}"
        for (own, theirs), schema in zip(join.pairs, schemas, strict=True)
    ]


def _compare_sql(writer: Writer, compare: Compare, row: Row) -> str:
    operator, quantifier = compare.operator, compare.quantifier
    if operator is Operator.IN:
        operator, quantifier = Operator.EQ, Quantifier.ANY
    left = f"{expression_sql(writer, compare.left, row)} {operator_sql(operator.value, compare.schema)}"
    if quantifier is None:
        return f"{left} {_value_sql(writer, compare.right)}"
    return f"{left} {quantifier.value}({_values_sql(writer, compare.right)})"


def _value_sql(writer: Writer, value: Parameter | Converted) -> str:
    if isinstance(value, Converted):
        return f"{value.function}({writer.slot(value.parameter)})"
    return writer.slot(value)


def _values_sql(writer: Writer, values: Parameter | Converted) -> str:
    if not isinstance(values, Converted):
        return writer.slot(values)
    alias = writer.alias()
    texts = f"pg_catalog.unnest({writer.slot(values.parameter)}) as {alias}(value)"
    return f"array(select {values.function}({alias}.value) from {texts})"


def _search_sql(writer: Writer, search: TextSearch, row: Row) -> str:
    left = expression_sql(writer, search.left, row)
    configuration = "" if search.language is None else f"{writer.slot(search.language)}, "
    words = f"pg_catalog.{search.syntax.value}({configuration}{writer.slot(search.query)})"
    vector = left if search.vector else f"pg_catalog.to_tsvector({configuration}{left})"
    return f"{vector} {operator_sql('@@')} {words}"


def _after_sql(writer: Writer, after: After, row: Row) -> str:
    """Return the keyset condition of a position.

    If all terms have the same direction and none can be NULL, this is one row comparison, so that an index
    can be used. Otherwise the condition is written term by term.
    """
    order, values = after.order, after.values
    expressions = [expression_sql(writer, term.expression, row) for term in order]
    slots = [None if value is None else writer.slot(value) for value in values]
    directions = {term.descending for term in order}
    schemas = {term.schema for term in order}
    uniform = len(directions) == len(schemas) == 1 and None not in slots
    if uniform and not any(term.nullable for term in order):
        operator = operator_sql("<" if directions.pop() else ">", schemas.pop())
        if len(order) == 1:
            return f"{expressions[0]} {operator} {slots[0]}"
        return f"({', '.join(expressions)}) {operator} ({', '.join(slot or '' for slot in slots)})"
    alternatives: list[str] = []
    equal: list[str] = []
    for term, expression, slot in zip(order, expressions, slots, strict=True):
        beyond = _beyond(term, expression, slot)
        if beyond is not None:
            alternatives.append("(" + " and ".join([*equal, beyond]) + ")")
        is_equal = f"{expression} {operator_sql('=', term.schema)} {slot}"
        equal.append(f"{expression} is null" if slot is None else is_equal)
    return "(" + " or ".join(alternatives) + ")" if alternatives else "false"


def _beyond(term: OrderTerm, expression: str, slot: str | None) -> str | None:
    if slot is None:
        return f"{expression} is not null" if term.nulls_first else None
    beyond = f"{expression} {operator_sql('<' if term.descending else '>', term.schema)} {slot}"
    if term.nullable and not term.nulls_first:
        return f"({beyond} or {expression} is null)"
    return beyond


def call_sql(writer: Writer, call: FunctionCall, parent: Row | None, json: Row | None = None) -> str:
    arguments = [parent.whole()] if call.of_row and parent is not None else []
    arguments += [_argument_sql(writer, argument, json) for argument in call.arguments]
    return f"{writer.function(call.function)}({', '.join(arguments)})"


def _argument_sql(writer: Writer, argument: CallArgument, json: Row | None) -> str:
    if json is not None and argument.value is None:
        value = json.column(argument.name)
        if argument.pairs:
            value = pairs_sql(value, argument.pairs)
        if argument.cast:
            value = f"{value}::{argument.cast}"
    else:
        value = "null" if argument.value is None else writer.slot(argument.value)
    if argument.composite is not None and argument.value is not None:
        constructor = f"pg_catalog.json_populate_record(null::{qualified(argument.composite)}, "
        writer.input_checks.append((f"select {constructor}$1) is null", argument.value))
        value = f"{constructor}{value})"
    name = f"{quote_identifier(argument.name)} => " if argument.name else ""
    return f"{'variadic ' if argument.variadic else ''}{name}{value}"


def pairs_sql(value: str, type_: str) -> str:
    """Return a value of a type like ``hstore``, built from a JSON object's members or a JSON string."""
    text = f"({value} {operator_sql('#>>')} '{{}}')::{type_}"
    names, values = (
        f"coalesce(pg_catalog.array_agg(pair.{part}), '{{}}'::text[])" for part in ("key", "value")
    )
    constructed = f"select {type_}({names}, {values}) from pg_catalog.json_each_text({value}) as pair"
    return f"case when pg_catalog.json_typeof({value}) {EQUAL} 'object' then ({constructed}) else {text} end"


def _relation_sql(writer: Writer, rows: Rows, row: Row, parent: Row | None) -> str:
    if rows.call is not None:
        relation = _called_sql(writer, rows.call, row, parent)
    else:
        assert rows.table is not None, "rows come from a table or a function call"
        relation = f"{qualified(rows.table)} as {row.alias}"
        if rows.stored_in is not None:
            # The planner reads the setting to estimate the rows. For EXPLAIN, a missing setting must not be
            # an error.
            stored = f"pg_catalog.current_setting({quote_literal(rows.stored_in)}, true)"
            relation = f"pg_catalog.unnest({stored}::{qualified(rows.table)}[]) as {row.alias}"
    if rows.through is None:
        return relation
    assert parent is not None, "a junction table needs a row of the outer query"
    through, between = rows.through, Row(writer.alias())
    matches = _equalities(through.far, between, row) + _equalities(through.near, between, parent)
    if through.where is not None:
        matches.append(condition_sql(writer, through.where, between))
    return f"{relation} join {qualified(through.table)} as {between.alias} on {' and '.join(matches)}"


def _called_sql(writer: Writer, call: FunctionCall, row: Row, parent: Row | None) -> str:
    prefix, json = "", None
    if call.from_json is not None:
        json = Row(writer.alias())
        prefix = f"{_json_arguments_sql(writer, call.from_json, json)} cross join lateral "
    called = call_sql(writer, call, parent, json)
    if call.value_column:
        return f"{prefix}(select {called} as {quote_identifier(call.value_column)}) as {row.alias}"
    return f"{prefix}{writer.dialect.call_source(call, called)} as {row.alias}"


def _json_arguments_sql(writer: Writer, arguments: JsonArguments, row: Row) -> str:
    value = writer.slot(arguments.value)
    members = ", ".join(f"{quote_identifier(name)} {type_}" for name, type_ in arguments.members)
    if not arguments.many:
        return f"pg_catalog.json_to_record({value}) as {row.alias}({members})"
    inner = Row(writer.alias())
    records = f"pg_catalog.json_to_recordset({value}) as {inner.alias}({members})"
    return f"(select {inner.alias}.* from {records} limit 1) as {row.alias}"
