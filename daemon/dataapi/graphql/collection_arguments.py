"""The arguments of a collection: filter, order, page and position, and the groups of ``groupBy``.

See docs/reference/graphql.md, Filters, Ordering and Pagination.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphql import GraphQLError

from dataapi.graphql.arguments import InputObject, InputTree, as_items, as_leaf, as_object
from dataapi.graphql.schema.catalog_view import ColumnField, ComputedField, RelatedField, TableView
from dataapi.graphql.schema.shared_types import OPERATORS
from dataapi.graphql.schema.type_mapping import (
    Encode,
    TypeMapping,
    aggregate_mapping,
    builtin_mapping,
    encode_list,
    encode_value,
)
from dataapi.graphql.sources import (
    Bounded,
    CursorPart,
    Fixed,
    InputLeaf,
    NodeIdPart,
    decode_cursor,
    decode_node_id,
    limit_of,
)
from dataapi.sql.algebra import (
    After,
    AggregateFunction,
    AggregateOf,
    And,
    CastOf,
    ColumnOf,
    Compare,
    ComputedOf,
    Condition,
    Exists,
    Expression,
    IsNull,
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
    all_of,
)
from dataapi.sql.expressions import is_builtin

_PATTERNS = frozenset({Operator.LIKE, Operator.ILIKE, Operator.REGEX, Operator.IREGEX, Operator.STARTS_WITH})


def filter_condition(view: TableView, tree: InputTree) -> Condition | None:
    """Return the condition of a filter, None when it demands nothing."""
    if not tree:
        return None
    members = (_member_condition(view, name, member) for name, member in as_object(tree).items())
    return all_of([condition for condition in members if condition is not None])


def _member_condition(view: TableView, name: str, member: InputTree) -> Condition | None:
    if member is None:
        return None
    column = view.columns_by_name.get(name)
    if column is not None:
        return all_of(operator_conditions(operand(column), column.mapping, as_object(member)))
    if name == "nodeId":
        return _node_id_condition(view, as_object(member))
    match view.others_by_input.get(name):
        case RelatedField() as related:
            return _related_condition(related, member)
        case ComputedField(function=function, mapping=mapping):
            return all_of(operator_conditions(ComputedOf(function), mapping, as_object(member)))
    if name == "not":
        inner = filter_condition(view, member)
        return None if inner is None else Not(inner)
    # Parts that demand nothing are ignored, in ``or`` too: a variable that is absent from one
    # alternative must not open the others to every row.
    parts = [part for part in (filter_condition(view, item) for item in as_items(member)) if part is not None]
    return all_of(parts) if name == "and" or len(parts) < 2 else Or(tuple(parts))


def _related_condition(related: RelatedField, member: InputTree) -> Condition | None:
    """Return the condition on related rows: the one of a to-one field, or some, none or every one."""
    if related.to_one:
        inner = filter_condition(related.target, member)
        return None if inner is None else Exists(related.rows(inner))
    conditions: list[Condition] = []
    for word, tree in as_object(member).items():
        if tree is None:
            continue
        inner = filter_condition(related.target, tree)
        if word == "every":
            if inner is not None:
                conditions.append(Not(Exists(related.rows(NotTrue(inner)))))
            continue
        found = Exists(related.rows(inner))
        conditions.append(found if word == "some" else Not(found))
    return all_of(conditions)


def operand(field: ColumnField) -> Expression:
    """Return a column as it is compared and ordered by."""
    column = ColumnOf(field.column.name)
    return CastOf(column, field.mapping.compare_as) if field.mapping.compare_as else column


def operator_conditions(left: Expression, mapping: TypeMapping, operators: InputObject) -> list[Condition]:
    """Return the conditions of one value's filter, one per operator.

    A null operand is neither met nor, under ``not``, missed, as in SQL: a client's empty variable
    must never widen an update or a delete to all rows.
    """
    conditions: list[Condition] = []
    for name, tree in operators.items():
        leaf = tree if isinstance(tree, InputLeaf) else None
        if name == "at" and tree is not None:
            conditions += _at_paths(left, as_items(tree))
        elif name == "search" and tree is not None:
            conditions.append(_text_search(left, as_object(tree)))
        elif mapping.kind == "JSON" and name in _JSON_OPERATORS and leaf is not None:
            value = Parameter(leaf.source(encode_value), "text" if name == "hasKey" else "jsonb")
            conditions.append(Compare(CastOf(left, "jsonb"), _JSON_OPERATORS[name], value, builtin=True))
        elif name == "is":
            if leaf is None:
                raise GraphQLError('The operator "is" takes NULL or NOT_NULL, not null.')
            conditions.append(IsNull(left, negated=bool(leaf.sample)))
        elif leaf is None:
            conditions.append(_compared_with_null(left, mapping.parameter))
        else:
            conditions.append(comparison(left, mapping, OPERATORS[name], leaf))
    return conditions


def _compared_with_null(left: Expression, type_: str) -> Condition:
    """Return the comparison with NULL, which is neither true nor false."""
    return Compare(left, Operator.EQ, Parameter(Fixed(None), type_))


def comparison(left: Expression, mapping: TypeMapping, operator: Operator, leaf: InputLeaf) -> Condition:
    """Return the condition that compares a value with an operand."""
    type_ = mapping.parameter
    encode: Encode = encode_value
    if mapping.is_list:
        encode = encode_list
    elif operator is Operator.IN:
        type_, encode = mapping.list_parameter, encode_list
    elif operator in _PATTERNS and type_ != "unknown":
        type_ = 'pg_catalog."text"'
    return Compare(left, operator, Parameter(leaf.source(encode), type_), mapping.builtin)


_JSON_OPERATORS = {
    "contains": Operator.CONTAINS,
    "containedBy": Operator.CONTAINED_BY,
    "hasKey": Operator.HAS_KEY,
}


def _at_paths(left: Expression, filters: list[InputTree]) -> list[Condition]:
    """Return the conditions on members of a JSON value, each by its path."""
    conditions: list[Condition] = []
    for item in map(as_object, filters):
        path = Parameter(as_leaf(item["path"]).source(encode_list), "text[]")
        for name, (kind, mapping) in _MEMBER_KINDS.items():
            operators = item.get(name)
            if operators is not None:
                member = JsonMemberOf(CastOf(left, "jsonb"), path, kind)
                conditions += operator_conditions(member, mapping, as_object(operators))
    return conditions


_MEMBER_KINDS = {
    "text": (JsonKind.TEXT, builtin_mapping("text")),
    "number": (JsonKind.NUMBER, builtin_mapping("numeric")),
    "boolean": (JsonKind.BOOLEAN, builtin_mapping("bool")),
}


def _text_search(left: Expression, search: InputObject) -> Condition:
    query = Parameter(as_leaf(search["query"]).source(encode_value), "text")
    language = search.get("language")
    if language is None:
        return TextSearch(left, query)
    return TextSearch(left, query, Parameter(as_leaf(language).source(encode_value), "regconfig"))


def _node_id_condition(view: TableView, operators: InputObject) -> Condition | None:
    if "eq" not in operators:
        return None
    leaf = operators["eq"]
    if leaf is not None:
        return key_condition(view, as_leaf(leaf))
    return all_of([_compared_with_null(column, type_) for column, type_ in _key_operands(view)])


def key_condition(view: TableView, leaf: InputLeaf) -> Condition:
    """Return the condition that a row is the one that a node id names.

    :raises GraphQLError: the node id is of another table or its key has another form.
    """
    key = decode_node_id(leaf.sample)
    if (key.schema, key.table) != (view.table.schema, view.table.name):
        raise leaf.error("nodeId belongs to a different collection")
    if len(key.values) != len(view.key):
        raise leaf.error("Invalid value passed to nodeId argument. Error 5")
    leaf = leaf.without_sample()
    return And(
        tuple(
            Compare(column, Operator.EQ, Parameter(NodeIdPart(leaf, place, type_), type_), is_builtin(type_))
            for place, (column, type_) in enumerate(_key_operands(view))
        )
    )


def _key_operands(view: TableView) -> Iterator[tuple[Expression, str]]:
    """Yield the key's columns as they are compared, each with its slot type."""
    for name, type_ in zip(view.key, view.key_types, strict=True):
        field = view.fields_by_column.get(name)
        yield ColumnOf(name) if field is None else operand(field), type_


@dataclass(frozen=True, slots=True)
class Page:
    """The page of rows that the arguments of a collection describe.

    :ivar rows: those of the page but for its position.
    :ivar position: where the page begins, in the direction of paging.
    """

    rows: Rows
    size: Bounded | int
    position: After | None
    backward: bool


Ordering = tuple[OrderTerm, str]
"""What rows are ordered by, with the slot type of its values, which a cursor holds."""


def read_page(view: TableView, rows: Rows, arguments: InputObject) -> Page:
    """Return the page of rows that the arguments of a collection describe.

    :raises GraphQLError: arguments that exclude each other, or a cursor of another order
        (docs/reference/graphql.md, Pagination).
    """
    provided = {name: tree for name, tree in arguments.items() if tree is not None}
    for one, other, message in _EXCLUSIVE:
        if one in provided and other in provided:
            raise GraphQLError(message)
    backward = "last" in provided or "before" in provided
    order = _read_order(view, as_items(provided.get("orderBy") or []))
    cursor, offset = provided.get("before") or provided.get("after"), provided.get("offset")
    where = filter_condition(view, provided.get("filter"))
    size = page_size(view, "last" if "last" in provided else "first", provided)
    rows = replace(
        rows,
        where=where,
        order=tuple(term for term, _ in order),
        limit=limit_of(size),
        offset=None if offset is None else Parameter(Bounded("offset", as_leaf(offset)), "bigint"),
    )
    position = None if cursor is None else _position(order, as_leaf(cursor), backward=backward)
    return Page(rows, size, position, backward)


def page_size(view: TableView, name: str, arguments: InputObject) -> Bounded | int:
    """Return how many rows an argument asks for, at most and by default as many as a page may have."""
    size = arguments.get(name)
    return view.max_rows if size is None else Bounded(name, as_leaf(size), view.max_rows)


_EXCLUSIVE = (
    ("first", "last", 'only one of "first" and "last" may be provided'),
    ("before", "after", 'only one of "before" and "after" may be provided'),
    ("first", "before", '"first" may only be used with "after"'),
    ("last", "after", '"last" may only be used with "before"'),
    ("offset", "last", '"offset" may only be used with "first" and "after"'),
    ("offset", "before", '"offset" may only be used with "first" and "after"'),
)


def _position(order: list[Ordering], cursor: InputLeaf, *, backward: bool) -> After:
    values = decode_cursor(cursor.sample)
    if len(values) != len(order):
        raise cursor.error("orderBy clause incompatible with pagination cursor")
    parameters = tuple(
        None if value is None else Parameter(CursorPart(cursor.without_sample(), index), type_)
        for index, (value, (_, type_)) in enumerate(zip(values, order, strict=True))
    )
    return After(tuple(term.reversed() if backward else term for term, _ in order), parameters)


def _read_order(view: TableView, elements: list[InputTree]) -> list[Ordering]:
    """Return the order of ``orderBy``, made total by the key at its end.

    :raises GraphQLError: an element has more than one member that is not null.
    """
    orderings = [_element(view, as_object(element or {})) for element in elements]
    order = [ordering for ordering in orderings if ordering is not None]
    ordered = {term.expression for term, _ in order}
    by_key = zip(view.key_order, view.key_types, strict=True)
    return [*order, *((term, type_) for term, type_ in by_key if term.expression not in ordered)]


def _only(members: InputObject) -> tuple[str, InputTree] | None:
    """Return an element's single member that is not null (docs/reference/graphql.md, Ordering)."""
    provided = {name: tree for name, tree in members.items() if tree is not None}
    if len(provided) > 1:
        names = ", ".join(provided)
        raise GraphQLError(
            f"An element of orderBy orders by one column, but {len(provided)} are given: {names}"
        )
    return next(iter(provided.items()), None)


def _element(view: TableView, element: InputObject) -> Ordering | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    field = view.columns_by_name.get(name)
    if field is not None:
        return _term(operand(field), tree, nullable=field.column.nullable), field.mapping.parameter
    related = view.others_by_input[name]
    assert isinstance(related, RelatedField), "only columns and relationships can be ordered by"
    return (_by_row if related.to_one else _by_rows)(related, as_object(tree))


def _term(expression: Expression, direction: InputTree, *, nullable: bool) -> OrderTerm:
    descending, nulls_first = as_leaf(direction).sample
    return OrderTerm(expression, descending, nulls_first, nullable)


def _by_row(related: RelatedField, element: InputObject) -> Ordering | None:
    inner = _element(related.target, element)
    if inner is None:
        return None
    term, type_ = inner
    expression = RelatedOf(related.rows(), term.expression)
    return replace(term, expression=expression, nullable=True), type_


def _by_rows(related: RelatedField, element: InputObject) -> Ordering | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    rows = related.rows()
    if name == "count":
        count = RelatedAggregateOf(rows, AggregateFunction.COUNT, None)
        return _term(count, tree, nullable=False), "bigint"
    column = _only(as_object(tree))
    if column is None:
        return None
    field = related.target.columns_by_name[column[0]]
    aggregate = aggregate_of(name, field)
    expression = RelatedAggregateOf(rows, aggregate.function, aggregate.expression, aggregate.builtin)
    return _term(expression, column[1], nullable=True), field.mapping.parameter


# PostgreSQL has no min(boolean); false is less than true.
_BOOLEAN_FUNCTIONS = {"min": AggregateFunction.EVERY, "max": AggregateFunction.SOME}


def aggregate_of(name: str, field: ColumnField) -> AggregateOf:
    """Return the aggregate of a column by the name of its field, such as ``sum``."""
    distinct = name == "countDistinct"
    function = AggregateFunction.COUNT if distinct else AggregateFunction(name)
    if field.mapping.kind == "Boolean":
        function = _BOOLEAN_FUNCTIONS.get(name, function)
    return AggregateOf(function, ColumnOf(field.column.name), distinct, distinct or field.mapping.builtin)


def having_condition(view: TableView, having: InputObject) -> Condition | None:
    """Return the condition on the groups of ``groupBy``, None when it demands nothing."""
    conditions: list[Condition] = []
    for name, member in having.items():
        if member is None:
            continue
        if name == "count":
            count = AggregateOf(AggregateFunction.COUNT)
            conditions += operator_conditions(count, builtin_mapping("int8"), as_object(member))
            continue
        for column, operators in as_object(member).items():
            if operators is not None:
                field = view.columns_by_name[column]
                mapping = aggregate_mapping(name, field.mapping)
                conditions += operator_conditions(aggregate_of(name, field), mapping, as_object(operators))
    return all_of(conditions)
