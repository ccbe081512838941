"""Converts a request's selection to SQL algebra: the rows to read and their members, for one role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dataapi.catalog.model import Catalog, Table
from dataapi.catalog.relationships import (
    ComputedRelationship,
    JunctionRelationship,
    KeyRelationship,
    Relationship,
)
from dataapi.database.sql_text import ALIAS, MAX_IDENTIFIER_BYTES
from dataapi.http.errors import ApiError
from dataapi.rest.media_output import Body, HandlerBody
from dataapi.rest.parse.filters import leaves
from dataapi.rest.parse.query import Selection, too_much
from dataapi.rest.parse.select import Embed, Field, PathStep, Star, Term
from dataapi.rest.plan.embed_tree import Resource, build_embed_tree, not_embedded
from dataapi.rest.plan.expressions import (
    CappedLimit,
    FixedText,
    Literal,
    TypedExpression,
    comparable,
    conditions_of,
    field_of,
    has_field,
)
from dataapi.rest.plan.tables import JSON, Relation, RoleTables
from dataapi.settings import Project
from dataapi.sql.algebra import (
    Aggregate,
    AggregateFunction,
    Cast,
    Condition,
    Exists,
    Expression,
    FunctionCall,
    FunctionExpression,
    Join,
    OrderTerm,
    Parameter,
    RelatedValue,
    Rows,
    Through,
    all_of,
)
from dataapi.sql.outputs import Key, Output, Text, Value
from dataapi.sql.row_output import Many, One, Record, Spread

MAX_RESOURCES_AND_CONDITIONS = 2500
"""Maximum number of resources and conditions in a statement, counted as often as they occur."""


def max_rows(catalog: Catalog, table: Table | None, default: int | None) -> int | None:
    own = None if table is None else catalog.directives.table(table.oid).rest_max_rows
    return default if own is None else own


class RowPlanner:
    """Plans the rows of one selection as values of the SQL algebra.

    Methods raise ``ApiError``: PGRST100 for syntax errors, PGRST108 for parameters of resources that are not
    embedded, PGRST200 and PGRST201 for resources that cannot be embedded, PGRST118, PGRST120, PGRST123, 42703
    and 42704.

    :param written: whether the request writes the rows. If so, ``db-max-rows`` does not limit them.
    """

    def __init__(
        self,
        tables: RoleTables,
        relation: Relation,
        selection: Selection,
        project: Project,
        *,
        written: bool = False,
    ) -> None:
        self._tables = tables
        self._maximum = None if written else project.db_max_rows
        self._occurrences = 0
        self._root = build_embed_tree(tables, relation, selection, project)

    def record(self) -> Record:
        return record_of(self._tables, self._root, self._rows)

    def rows(self, call: FunctionCall | None = None) -> Rows:
        return self._rows(self._root, call)

    def where(self) -> Condition | None:
        return all_of(conditions_of(self._tables, self._root, self._rows))

    def required(self) -> Condition | None:
        return all_of(self._required(self._root))

    def order(self) -> tuple[OrderTerm, ...]:
        return self._order(self._root)

    # ------------------------------------------------------------ resources

    def _rows(self, resource: Resource, call: FunctionCall | None = None) -> Rows:
        self._count(resource)
        conditions = conditions_of(self._tables, resource, self._rows)
        where = all_of([*conditions, *self._required(resource)])
        table = resource.relation.table
        maximum = 1 if resource.to_one else max_rows(self._tables.catalog, table, self._maximum)
        limit: Parameter | int | None = maximum
        if resource.limit is not None:
            limit = Parameter(CappedLimit(resource.limit, maximum), "bigint")
        related_call, join, through = _related_by(resource.relationship)
        return Rows(
            table,
            related_call or call,
            join,
            where,
            self._order(resource),
            limit,
            Parameter(Literal(resource.offset), "bigint") if resource.offset is not None else None,
            unique=_is_unique(resource),
            through=through,
        )

    def _count(self, resource: Resource) -> None:
        """Count a resource, its filters and its order terms each time that the statement contains them."""
        self._occurrences += 1 + len(resource.order)
        self._occurrences += sum(1 for tree, _ in resource.filters for _ in leaves(tree))
        if self._occurrences > MAX_RESOURCES_AND_CONDITIONS:
            raise too_much(
                f"At most {MAX_RESOURCES_AND_CONDITIONS} resources, filters and order terms are allowed. "
                "A filter or order by an embedded resource counts the resource and its filters again."
            )

    def _required(self, resource: Resource) -> list[Condition]:
        inner = [child for child in resource.children if child.embed is not None and child.embed.inner]
        return [Exists(self._rows(child)) for child in inner]

    # ------------------------------------------------------------ orders

    def _order(self, resource: Resource) -> tuple[OrderTerm, ...]:
        return tuple(self._order_term(resource, term) for term in resource.order)

    def _order_term(self, resource: Resource, term: Term) -> OrderTerm:
        typed = self._order_value(resource, term)
        descending = bool(term.descending)
        # By default, PostgreSQL sorts NULL as the largest value.
        nulls_first = descending if term.nulls_first is None else term.nulls_first
        return OrderTerm(typed.expression, descending, nulls_first, typed.nullable)

    def _order_value(self, resource: Resource, term: Term) -> TypedExpression:
        types = self._tables.types
        if term.relation is None:
            return comparable(types, field_of(self._tables, resource.relation, term.name, term.path))
        child = resource.child(term.relation)
        if child is None:
            raise not_embedded(term.relation)
        if not child.to_one:
            raise ApiError(
                400,
                "PGRST118",
                f"A related order on '{term.relation}' is not possible",
                details=f"'{resource.relation.name}' and '{term.relation}' do not form a many-to-one or"
                " one-to-one relationship",
            )
        member = self._member_value(child, term)
        value = member or field_of(self._tables, child.relation, term.name, term.path)
        return self._related_value(child, comparable(types, value))

    def _member_value(self, child: Resource, term: Term) -> TypedExpression | None:
        own = value_named(self._tables, child, term)
        if own is not None:
            return own
        spread = (below for below in child.children if below.is_spread and below.to_one)
        values = ((below, self._member_value(below, term)) for below in spread)
        return next((self._related_value(below, inner) for below, inner in values if inner is not None), None)

    def _related_value(self, child: Resource, inner: TypedExpression) -> TypedExpression:
        related: Expression = RelatedValue(self._rows(child), inner.expression)
        return TypedExpression(related, inner.type)


def _is_unique(resource: Resource) -> bool:
    """Whether a unique key identifies an embedded row, and no limit or offset excludes it."""
    relationship = resource.relationship
    if not isinstance(relationship, KeyRelationship) or not relationship.to_one:
        return False
    unwindowed = resource.limit is None and resource.offset is None
    return unwindowed and relationship.target.is_unique(theirs for _, theirs in relationship.pairs)


def _join_to(relationship: KeyRelationship) -> Join:
    return Join(tuple([(theirs, own) for own, theirs in relationship.pairs]), relationship.schemas)


def _related_by(
    relationship: Relationship | None,
) -> tuple[FunctionCall | None, Join | None, Through | None]:
    match relationship:
        case KeyRelationship():
            return None, _join_to(relationship), None
        case JunctionRelationship(near=near, far=far):
            through = Through(relationship.junction, _join_to(near), Join(far.pairs, far.schemas))
            return None, None, through
        case ComputedRelationship(function=function):
            return FunctionCall(function, of_row=True), None, None
    return None, None, None


# ---------------------------------------------------------------- members of a record

Member = tuple[Key, Output]


def record_of(tables: RoleTables, resource: Resource, rows_of: Callable[[Resource], Rows]) -> Record:
    """Return the record of a resource's rows, including embedded resources.

    :raises ApiError: 42703 or 42704 (400) for an unknown column or type.
    """
    members: list[Member | Spread] = []
    grouped = False
    children = iter(resource.children)
    for item in resource.items:
        match item:
            case Star():
                for name in resource.relation.columns or ():
                    value = _json_value(tables, field_of(tables, resource.relation, name))
                    members.append((Text(name), Value(value)))
            case Field():
                field = _with_count_aggregate(tables, resource.relation, item)
                members.append(_field(tables, resource.relation, field))
                grouped = grouped or field.aggregate is not None
            case Embed():
                member = _embedded(tables, next(children), rows_of)
                if member is not None:
                    members.append(member)
                if isinstance(member, Spread) and not member.many:
                    grouped = grouped or member.record.grouped
    return Record(tuple(members), grouped)


def value_named(tables: RoleTables, resource: Resource, term: Term) -> TypedExpression | None:
    """Return the value of the member that an ``order`` term names, None if there is none.

    :raises ApiError: 42703 or 42704 (400) for an unknown column or type.
    """
    for item in resource.items:
        if isinstance(item, Star) and term.name in (resource.relation.columns or ()):
            return field_of(tables, resource.relation, term.name, term.path)
        if not isinstance(item, Field) or item.aggregate is not None:
            continue
        if term.name == (item.alias or _last_name(item.path) or item.name):
            if item.cast is None:
                return field_of(tables, resource.relation, item.name, (*item.path, *term.path))
            typed = field_of(tables, resource.relation, item.name, item.path)
            return TypedExpression(_cast(tables, typed.expression, item.cast), None)
    return None


def _embedded(
    tables: RoleTables, child: Resource, rows_of: Callable[[Resource], Rows]
) -> Member | Spread | None:
    embed, relationship = child.embed, child.relationship
    assert embed is not None, "only the root is not embedded"
    assert relationship is not None, "an embedded resource has a relationship"
    record, rows = record_of(tables, child, rows_of), rows_of(child)
    if embed.silent:
        return None
    if embed.spread:
        return Spread(rows, record, many=not relationship.to_one)
    is_table = embed.key == relationship.target.name
    key: Key = Text(embed.key) if is_table else Parameter(FixedText(embed.key), "text")
    return key, One(rows, record) if relationship.to_one else Many(rows, record)


def _with_count_aggregate(tables: RoleTables, relation: Relation, field: Field) -> Field:
    """Convert ``count`` to the aggregate unless it is a column or computed field of the relation.

    The aggregate works even with ``db-aggregates-enabled = no``, as in PostgREST, where PostgreSQL interprets
    ``table.count`` as a function call.
    """
    if field.name != "count" or field.path or field.aggregate or has_field(tables, relation, "count"):
        return field
    return replace(field, name="", cast=None, aggregate="count", aggregate_cast=field.cast)


def _field(tables: RoleTables, relation: Relation, field: Field) -> Member:
    key = _key(field)
    if not field.name:
        return key, Value(_cast(tables, Aggregate(AggregateFunction.COUNT), field.aggregate_cast))
    typed = field_of(tables, relation, field.name, field.path)
    value = typed.expression if field.path or field.aggregate else _json_value(tables, typed)
    expression = _cast(tables, value, field.cast)
    if field.aggregate is not None:
        function = AggregateFunction(field.aggregate)
        schema = tables.types.schema_of(function.value, None if field.cast else typed.type)
        expression = Aggregate(function, expression, schema=schema)
        expression = _cast(tables, expression, field.aggregate_cast)
    return key, Value(expression)


def _key(field: Field) -> Key:
    if field.alias is not None:
        return Parameter(FixedText(field.alias), "text")
    if field.aggregate is not None:
        return Text(field.aggregate)
    if field.path:
        return Parameter(FixedText(_last_name(field.path) or field.name), "text")
    return Text(field.name)


def _last_name(path: tuple[PathStep, ...]) -> str | None:
    return next((step.operand for step in reversed(path) if not step.is_index), None)


def _json_value(tables: RoleTables, typed: TypedExpression) -> Expression:
    function = tables.types.representation(typed.type, JSON)
    return typed.expression if function is None else FunctionExpression(function, typed.expression)


def _cast(tables: RoleTables, expression: Expression, name: str | None) -> Expression:
    return expression if name is None else Cast(expression, tables.types.cast(name))


def with_column_names(record: Record, body: Body) -> Record:
    """Return the record with constant keys, if an aggregate that accepts any row type builds the body.

    Such an aggregate reads column names from the row type, so aliases become quoted names in the statement.
    Aliases that PostgreSQL would truncate, or that could be mistaken for generated names, remain parameters.
    """
    if not isinstance(body, HandlerBody) or body.table is not None:
        return record
    members: list[Member | Spread] = []
    for member in record.members:
        if isinstance(member, Spread):
            members.append(replace(member, record=with_column_names(member.record, body)))
        else:
            members.append((_column_key(member[0]), member[1]))
    return Record(tuple(members), record.grouped)


def _column_key(key: Key) -> Key:
    if not isinstance(key, Parameter) or not isinstance(key.source, FixedText):
        return key
    name = key.source.text
    fits = 0 < len(name.encode("utf-8", "replace")) <= MAX_IDENTIFIER_BYTES and not name.startswith(ALIAS)
    return Text(name) if fits and name.isprintable() else key
