"""Rewrites the algebra to compare each distributed table with the statement's tenant.

Citus sends a statement about one tenant unchanged to the server with the tenant's rows if each distributed
table in it is compared with the same constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from dataapi.database.sql_text import OWN_SCHEMA
from dataapi.sql.algebra import (
    And,
    ColumnRef,
    Compare,
    Condition,
    Operator,
    Parameter,
    Rows,
)
from dataapi.sql.mutations import Delete, Insert, Update, ValueRows
from dataapi.sql.parts import is_algebra, parts_of

T = TypeVar("T")


def pinned(value: T, tenant: Compare | None = None) -> T:
    """Return a part of the algebra with a tenant condition for each distributed table whose tenant is known.

    :param tenant: the condition that selects the tenant of the outer query's row, None if it is unknown.
    """
    if isinstance(value, tuple):
        rewritten = tuple([pinned(each, tenant) for each in value])
        return value if all(map(_same, rewritten, value)) else cast(T, rewritten)
    if not is_algebra(value):
        return value
    scope = tenant_in(value, tenant)
    changed: dict[str, Any] = {}
    for name, part in parts_of(value):
        # ``Rows`` are joined to the row of the outer query. Outputs and conditions belong to the rows of
        # ``value``.
        pinned_part = pinned(part, tenant if isinstance(part, Rows) else scope)
        if pinned_part is not part:
            changed[name] = pinned_part
    if isinstance(value, Rows):
        changed |= _tenant_conditions(value, changed.get("where", value.where), tenant, scope)
    return cast(T, replace(cast(Any, value), **changed)) if changed else value


def _same(one: object, other: object) -> bool:
    return one is other


def _tenant_conditions(
    rows: Rows, where: Condition | None, tenant: Compare | None, own: Compare | None
) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if own is not None and own is not _tenant_of(rows, None):
        rest = where.conditions if isinstance(where, And) else () if where is None else (where,)
        changed["where"] = And((own, *rest)) if rest else own
    if rows.through is not None and tenant is not None:
        through = rows.through
        junction = _joined(through.table.distributed_by, through.near.pairs, tenant)
        if junction is not None:
            changed["through"] = replace(through, where=junction)
    return changed


def tenant_in(value: object, tenant: Compare | None = None) -> Compare | None:
    """Return the condition that compares the distribution column of the rows in ``value`` with their tenant.

    The result is None if the tenant is unknown.

    :param tenant: the condition for the row of the outer query. It is returned if ``value`` has no rows.
    """
    match value:
        case Rows():
            return _tenant_of(value, tenant)
        case Update(table=table, where=where) | Delete(table=table, where=where):
            return _tenant_of(Rows(table, where=where), None)
        case Insert():
            return _tenant_of_rows(value)
    for name in ("rows", "mutation"):
        inner = getattr(value, name, None)
        if isinstance(inner, Rows | Insert | Update | Delete):
            return tenant_in(inner, tenant)
    return tenant


def _tenant_of(rows: Rows, tenant: Compare | None) -> Compare | None:
    if rows.table is None or not rows.table.distributed_by or rows.call is not None:
        return None
    name = rows.table.distributed_by
    own = _equated(rows.where, name)
    if own is not None or tenant is None:
        return own
    if rows.through is None:
        return _joined(name, () if rows.join is None else rows.join.pairs, tenant)
    junction = _joined(rows.through.table.distributed_by, rows.through.near.pairs, tenant)
    pairs = tuple((theirs, ours) for ours, theirs in rows.through.far.pairs)
    return None if junction is None else _joined(name, pairs, junction)


def _tenant_of_rows(insert: Insert) -> Compare | None:
    table, rows = insert.table, insert.rows
    if not isinstance(rows, ValueRows) or table.distributed_by not in rows.columns:
        return None
    values = {row[rows.columns.index(table.distributed_by)] for row in rows.rows}
    if len(values) != 1 or not isinstance(value := values.pop(), Parameter):
        return None
    column = table.column(table.distributed_by)
    schema = OWN_SCHEMA if column is None else column.comparison_schema
    return Compare(ColumnRef(table.distributed_by), Operator.EQ, value, schema)


def _equated(condition: Condition | None, name: str) -> Compare | None:
    match condition:
        case Compare(ColumnRef(column), Operator.EQ, Parameter(), quantifier=None) if column == name:
            return condition
        case And(conditions):
            return next(
                (comparison for each in conditions if (comparison := _equated(each, name)) is not None), None
            )
        case _:
            return None


def _joined(name: str | None, pairs: Sequence[tuple[str, str]], tenant: Compare) -> Compare | None:
    if name and isinstance(tenant.left, ColumnRef) and (name, tenant.left.name) in pairs:
        return replace(tenant, left=ColumnRef(name))
    return None
