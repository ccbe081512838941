"""What SQL must differ in where Citus distributes rows over servers; nothing of it holds elsewhere.

A statement about one tenant is sent as it is to the server that has the tenant's rows: ``tenant_of``.  Any
other one is taken apart, and a part is sent to each shard.  Citus refuses a subquery about rows that it has
gathered, so rows related to those of all shards are joined on the shards, before that: ``ShardRows``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dataapi.catalog.model import Table, Volatility
from dataapi.database.sql_text import OWN_SCHEMA, quote_identifier
from dataapi.sql.algebra import And, ColumnOf, Compare, Condition, FunctionCall, Operator, Parameter, Rows
from dataapi.sql.mutations import Delete, Insert, Mutation, Update, ValueRows
from dataapi.sql.statement import Row

# ---------------------------------------------------------------- one tenant


def tenant_of(rows: Rows, parent: Row | None) -> tuple[Compare | None, Compare | None]:
    """Return the condition that gives the rows' distribution column one value, and what is to be said of it.

    The second one follows from the row that they are joined to.  Citus finds that all of a statement is of
    one shard where each table is compared with the constant itself.
    """
    if rows.table is None or not rows.table.distributed_by or rows.call is not None:
        return None, None
    name = rows.table.distributed_by
    own = _compared(rows.where, name)
    if own is not None or parent is None or parent.tenant is None:
        return own, None
    pairs = () if rows.join is None else rows.join.pairs
    if rows.through is not None:
        junction = joined_tenant(rows.through.table.distributed_by, rows.through.near.pairs, parent.tenant)
        pairs = () if junction is None else tuple((theirs, name) for name, theirs in rows.through.far.pairs)
        inherited = None if junction is None else joined_tenant(name, pairs, junction)
    else:
        inherited = joined_tenant(name, pairs, parent.tenant)
    return inherited, inherited


def tenant_of_change(mutation: Mutation) -> Compare | None:
    """Return the condition that gives all changed rows one tenant, None where there is none."""
    table = mutation.table
    match mutation:
        case Update(where=where) | Delete(where=where):
            return tenant_of(Rows(table, where=where), None)[0]
        case Insert(rows=ValueRows(columns, rows)) if table.distributed_by in columns:
            values = {row[columns.index(table.distributed_by)] for row in rows}
            if len(values) == 1 and isinstance(value := values.pop(), Parameter):
                column = table.column(table.distributed_by)
                schema = OWN_SCHEMA if column is None else column.comparison_schema
                return Compare(ColumnOf(table.distributed_by), Operator.EQ, value, schema)
    return None


def _compared(condition: Condition | None, name: str) -> Compare | None:
    """Return the comparison of a column with one value that a condition demands."""
    match condition:
        case Compare(ColumnOf(column), Operator.EQ, Parameter(), quantifier=None) if column == name:
            return condition
        case And(conditions):
            return next((found for each in conditions if (found := _compared(each, name)) is not None), None)
        case _:
            return None


def joined_tenant(name: str | None, pairs: Sequence[tuple[str, str]], tenant: Compare) -> Compare | None:
    """Return the same comparison for a column that equals the compared one."""
    if name and isinstance(tenant.left, ColumnOf) and (name, tenant.left.name) in pairs:
        return replace(tenant, left=ColumnOf(name))
    return None


# ---------------------------------------------------------------- all shards


class ShardRows:
    """The rows of a page that come from all shards, and what each shard makes of its own before that.

    :param row: the row where it is selected.
    """

    def __init__(self, row: Row, table: Table) -> None:
        self.row = row
        self._table = table
        self._made: list[str] = []

    def have(self, rows: Rows | None) -> bool:
        """Whether the rows that are related to one of these are where that one is."""
        if rows is None or rows.table is None or rows.call is not None:
            return False
        if rows.through is not None:
            junction = _are_beside(rows.through.table, rows.through.near.pairs, self._table)
            far = tuple((theirs, own) for own, theirs in rows.through.far.pairs)
            return junction and _are_beside(rows.table, far, rows.through.table)
        return rows.join is not None and _are_beside(rows.table, rows.join.pairs, self._table)

    def make(self, sql: str, page: Row) -> str:
        """Have the shards make a value; return its column of the page."""
        name = quote_identifier(f"~made{len(self._made)}")
        self._made.append(f", {sql} as {name}")
        return f"{page.alias}.{name}"

    def make_list(self, texts: Sequence[str], source: str, page: Row) -> list[str]:
        """Have the shards make texts from the one row of a source; return the SQL of each in the page."""
        made = self.make(f"(select array[{', '.join(texts)}] from {source})", page)
        return [f"({made})[{place}]" for place in range(1, len(texts) + 1)]

    @property
    def items(self) -> str:
        """What is selected besides the page's columns."""
        return "".join(self._made)


def shard_rows(
    rows: Rows, tenant: Compare | None, inner: Callable[[], Row], *, derived: bool = False
) -> ShardRows | None:
    """Return a page's rows where they come from all shards, else None.

    :param tenant: the condition that gives them one tenant, if any.
    :param inner: returns the row where it is selected.
    :param derived: whether they are of a query within the statement, which has gathered them.
    """
    table = rows.table
    if table is None or not table.colocated or rows.call is not None or tenant is not None or derived:
        return None
    return ShardRows(inner(), table)


def _are_beside(table: Table, pairs: Sequence[tuple[str, str]], other: Table) -> bool:
    """Whether a row is on the server that has the row of another table to which it is joined."""
    if table.colocated == 0:
        return True
    together = table.colocated is not None and table.colocated == other.colocated
    return together and (table.distributed_by, other.distributed_by) in pairs


def typed(rows: Rows, *, one: bool) -> Table | None:
    """Return the table by whose types values are written, None where they are written alike.

    SQL for a type runs faster and is longer: of one row Citus takes longer to read it than to run it.

    :param one: whether there is at most one row.
    """
    distributed = rows.table is not None and rows.table.distributed_by is not None
    return None if one and distributed else rows.table


def whole_sql(rows: Rows, order: str) -> str:
    """Return what keeps rows in their order.

    Without a limit Citus asks each shard for an aggregate over its part of them.
    """
    clustered = rows.call.function.clustered if rows.call else rows.table is not None and rows.table.clustered
    return " offset 0" if clustered and order else ""


def composite_of(rows: Rows) -> Table | None:
    """Return the table whose type a whole row must be made to have, as that of a shard is another one."""
    table = rows.table
    distributed = table is not None and table.distributed_by is not None
    numbered = table is not None and rows.call is not None and is_opaque(rows.call)
    return table if distributed or numbered else None


def is_opaque(call: FunctionCall) -> bool:
    """Whether PostgreSQL must not put the body of a called function into the statement.

    It does so once Citus has looked for distributed tables: their rows would be missing without an error.
    """
    function = call.function
    return function.clustered and function.returns_set and function.volatility is not Volatility.VOLATILE
