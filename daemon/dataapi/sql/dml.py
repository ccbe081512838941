"""SQL for mutations: the data-modifying queries of a ``with`` clause."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from dataapi.catalog.model import Table
from dataapi.database.sql_text import (
    EQUAL,
    MINUS,
    OWN_SCHEMA,
    PLUS,
    UNEQUAL,
    operator_sql,
    quote_identifier,
    quote_literal,
)
from dataapi.sql.algebra import Rows
from dataapi.sql.expressions import condition_sql, pairs_sql
from dataapi.sql.mutations import (
    Cell,
    ComputedCell,
    Default,
    Delete,
    Insert,
    JsonColumn,
    JsonRows,
    MissingMember,
    Mutation,
    NestedRow,
    NestedRows,
    OnConflict,
    RelatedRow,
    Update,
    ValueRows,
)
from dataapi.sql.statement import Row, Writer, qualified, raise_sql

MAX_UNION = 32
"""Maximum number of queries in a union. PostgreSQL's planning time grows with the square of the number."""


def mutation_queries(writer: Writer, mutation: Mutation, name: str, returned: Row, index: int = 0) -> str:
    """Return the ``with`` queries of a mutation. The last query is called ``name``.

    It returns the referenced columns of ``returned``. Errors contain the ``index`` of the mutation.
    """
    if isinstance(mutation, Insert) and isinstance(mutation.rows, NestedRows):
        nested = _NestedWriter(writer, index)
        names = [nested.insert(row, (), (), returned.selection_from) for row in mutation.rows.rows]
        columns = ", ".join(returned.required_columns())
        while len(names) > MAX_UNION:
            names = [nested.union(columns, each) for each in _divided(names)]
        return ", ".join([*nested.queries, f"{name} as ({_union_sql(columns, names)})"])
    return f"{name} as ({_mutation_sql(writer, mutation, returned)})"


def _mutation_sql(writer: Writer, mutation: Mutation, returned: Row) -> str:
    target = Row(writer.alias())
    target.value = writer.dialect.whole_row(Rows(mutation.table), target)
    match mutation:
        case Insert():
            text = insert_sql(writer, mutation, target)
        case Update(table, JsonRows(columns=columns), _, key) if {each.name for each in columns} <= {*key}:
            # SQL has no update without assignments.
            selection = returned.selection_from(target)
            source = f" from {qualified(table)} as {target.alias}" if selection != "1" else ""
            return f"select {selection}{source} where false"
        case Update():
            text = update_sql(writer, mutation, target)
        case Delete():
            text = delete_sql(writer, mutation, target)
    return f"{text} returning {returned.selection_from(target)}"


def inserted_sql(name: str, mutation: Mutation) -> str:
    """Return SQL for the number of rows that an upsert inserted rather than updated.

    This is the number of rows that the CTE ``name`` returned, minus the updated rows, which are counted in a
    setting. Reading a system column instead would need the privilege to read the whole table, and views have
    no system columns.
    """
    counter = counter_of(mutation)
    if counter is None:
        return UNCOUNTED
    updated = f"pg_catalog.current_setting({quote_literal(counter)})::bigint"
    return f"(select pg_catalog.count(*) from {name}) {MINUS} {updated}"


UNCOUNTED = "null::bigint"
"""SQL for the number of inserted rows if they are not counted separately."""


def counter_of(mutation: Mutation) -> str | None:
    conflict = mutation.conflict if isinstance(mutation, Insert) else None
    return None if conflict is None else conflict.counter


# ---------------------------------------------------------------- insert


def insert_sql(writer: Writer, insert: Insert, target: Row) -> str:
    into = f"insert into {qualified(insert.table)} as {target.alias}"
    match insert.rows:
        case ValueRows(columns, rows):
            cells = ", ".join(f"({', '.join(_cell_sql(writer, cell) for cell in row)})" for row in rows)
            text = f"{into} ({_listed(columns)}) values {cells}"
        case JsonRows() as rows:
            row = Row(writer.alias())
            source = json_source_sql(writer, rows, row)
            cells = ", ".join(_json_cell_sql(rows, each, row) for each in rows.columns)
            text = f"{into} select from {source}"
            if cells:
                names = _listed(column.name for column in rows.columns)
                text = f"{into} ({names}) select {cells} from {source}"
            if insert.matching is not None:
                text += f" where {condition_sql(writer, insert.matching, row)} limit 1"
        case NestedRows():
            raise TypeError("nested rows need a query per row")
    return text if insert.conflict is None else text + _conflict_sql(insert.conflict)


def _conflict_sql(conflict: OnConflict) -> str:
    key = f"({_listed(conflict.columns)})"
    if conflict.constraint is not None:
        key = f"on constraint {quote_identifier(conflict.constraint)}"
    if not conflict.update:
        return f" on conflict {key} do nothing"
    names = map(quote_identifier, conflict.update)
    text = f" on conflict {key} do update set " + ", ".join(f"{name} = excluded.{name}" for name in names)
    if conflict.counter is None:
        return text
    setting = quote_literal(conflict.counter)
    incremented = f"(pg_catalog.current_setting({setting})::bigint {PLUS} 1)::text"
    return f"{text} where pg_catalog.set_config({setting}, {incremented}, true) {UNEQUAL} ''"


# ---------------------------------------------------------------- update and delete


def update_sql(writer: Writer, update: Update, target: Row) -> str:
    conditions: list[str] = []
    source = ""
    match update.values:
        case ValueRows(columns, rows):
            [row] = rows
            cells = [_cell_sql(writer, cell) for cell in row]
        case JsonRows() as rows:
            json = Row(writer.alias())
            source = f" from {json_source_sql(writer, rows, json, first=not update.key)}"
            written = [each for each in rows.columns if each.name not in update.key]
            columns = tuple(each.name for each in written)
            cells = [_json_cell_sql(rows, each, json, target) for each in written]
            equalities = [(name, operator_sql("=", _equality(update.table, name))) for name in update.key]
            conditions = [f"{target.column(name)} {equal} {json.column(name)}" for name, equal in equalities]
    if update.where is not None:
        conditions.append(condition_sql(writer, update.where, target))
    assignments = ", ".join(
        f"{quote_identifier(name)} = {cell}" for name, cell in zip(columns, cells, strict=True)
    )
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return f"update {qualified(update.table)} as {target.alias} set {assignments}{source}{where}"


def _equality(table: Table, name: str) -> str:
    column = table.column(name)
    return OWN_SCHEMA if column is None else column.comparison_schema


def delete_sql(writer: Writer, delete: Delete, target: Row, *conditions: str) -> str:
    """Return a ``delete`` without ``returning``. ``conditions`` precede the conditions of the delete."""
    clauses = list(conditions)
    if delete.where is not None:
        clauses.append(condition_sql(writer, delete.where, target))
    where = f" where {' and '.join(clauses)}" if clauses else ""
    return f"delete from {qualified(delete.table)} as {target.alias}{where}"


# ---------------------------------------------------------------- values


def _cell_sql(writer: Writer, cell: Cell | Default) -> str:
    if isinstance(cell, Default):
        return "default"
    if isinstance(cell, ComputedCell):
        return cell.sql(writer)
    return "null" if cell is None else writer.slot(cell)


def json_source_sql(writer: Writer, rows: JsonRows, row: Row, *, first: bool = False) -> str:
    """Return the ``from`` item of JSON rows, or of only the first row, aliased as ``row``."""
    slot = writer.slot(rows.value)
    members = ", ".join(f"{quote_identifier(each.key)} {each.type}" for each in rows.columns)
    record = f"{row.alias}({members})"
    if rows.columns and rows.missing is MissingMember.NULL:
        function = f"pg_catalog.{'json_to_recordset' if rows.many else 'json_to_record'}"
        writer.input_checks.append(
            (f"select pg_catalog.count(*) from {function}($1) as {record}", rows.value)
        )
        source = f"{function}({slot}) as {record}"
        return f"(select * from {source} limit 1) as {row.alias}" if first and rows.many else source
    objects = f"(select {slot}) as {_objects(row)}(value)"
    if rows.many:
        objects = f"pg_catalog.json_array_elements({slot}) as {_objects(row)}(value)"
        if first:
            objects = f"(select * from {objects} limit 1) as {_objects(row)}"
    if not rows.columns:
        return objects
    return f"{objects} cross join lateral pg_catalog.json_to_record({_objects(row)}.value) as {record}"


def _json_cell_sql(rows: JsonRows, column: JsonColumn, row: Row, updated: Row | None = None) -> str:
    value = row.column(column.key)
    if column.pairs:
        value = pairs_sql(value, column.pairs)
    if column.function:
        value = f"{column.function}({value})"
    if column.cast:
        value = f"{value}::{column.cast}"
    missing = None
    if rows.missing is MissingMember.DEFAULT and column.default is not None:
        missing = f"({column.default})"
    elif rows.missing is MissingMember.UNCHANGED and updated is not None:
        missing = updated.column(column.name)
    if missing is None:
        return value
    # A member that is null yields the JSON value null. Only a missing member yields NULL.
    member = f"{_objects(row)}.value {operator_sql('->')} {quote_literal(column.key)}::text"
    return f"case when ({member}) is not null then {value} else {missing} end"


def _objects(row: Row) -> str:
    return f'{row.alias[:-1]}~object"'


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quote_identifier, names))


# ---------------------------------------------------------------- nested inserts

CONFLICTING_VALUES = "conflicting values for "
"""Prefix of the error message if related rows set a column to different values."""
NOT_FOUND = "an existing row is hidden or was just inserted"
"""Error message if a row exists but is not visible to the statement."""
SKIPPED = "a trigger did not insert a row that another row references"
"""Error message if a trigger skipped a row whose key other rows need."""

_Selection = Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class _Assigned:
    """A column to set to a value that an earlier insert returned.

    :ivar query: the CTE of the earlier insert.
    :ivar theirs: the column of the CTE that contains the value.
    """

    name: str
    query: str
    theirs: str

    @property
    def sql(self) -> str:
        return f"(select {_returned(self.theirs)} from {self.query})"


class _NestedWriter:
    """Writes an insert for each row, in the order of their dependencies.

    A row with a foreign key is inserted after its parent and uses the key that the parent's insert returned.
    Several keys may share a column, such as a tenant's. The column must then have one value.
    """

    def __init__(self, writer: Writer, index: int) -> None:
        self._writer = writer
        self._index = index
        self._last_child = ""
        self._parents: dict[tuple[int | None, tuple[str, ...]], str] = {}
        self._conditions: dict[str, str] = {}
        self.queries: list[str] = []

    def insert(
        self,
        row: NestedRow,
        assigned: tuple[_Assigned, ...],
        returned: Iterable[str],
        selection: _Selection | None = None,
    ) -> str:
        """Write the inserts of a row, its parents and its children, and return the name of the row's CTE.

        :param assigned: columns to set to values that earlier inserts return.
        :param returned: columns that later inserts need from this row.
        """
        name = self._writer.alias()
        for parent in row.parents:
            parent_name = self._parent(parent)
            assigned += tuple(_Assigned(own, parent_name, column) for column, own in parent.pairs)
        keys = dict.fromkeys((*returned, *(own for child in row.children for _, own in child.pairs)))
        found = self._insert(name, row, assigned, keys, selection)
        for child in row.children:
            keys_of_row = tuple(_Assigned(column, found, own) for column, own in child.pairs)
            self._last_child = self.insert(child.row, keys_of_row, ())
        return name if selection is not None else found

    def union(self, columns: str, names: Sequence[str]) -> str:
        name = self._writer.alias()
        # If PostgreSQL inlined these queries, it would plan all of them as one union.
        self.queries.append(f"{name} as materialized ({_union_sql(columns, names)})")
        return name

    def _parent(self, parent: RelatedRow) -> str:
        theirs = tuple(column for column, _ in parent.pairs)
        if parent.row.conflict is None:
            return self.insert(parent.row, (), theirs)
        name = self._parents.get((parent.row.number, theirs))
        if name is None:
            name = self._parents[parent.row.number, theirs] = self.insert(parent.row, (), theirs)
        return name

    def _insert(
        self,
        name: str,
        row: NestedRow,
        assigned: tuple[_Assigned, ...],
        keys: Collection[str],
        selection: _Selection | None,
    ) -> str:
        writer, target = self._writer, Row(self._writer.alias())
        cells, source = self._cells(row)
        conditions = [self._after()] if assigned and self._last_child else []
        conditions += [self._conditions[query] for query in dict.fromkeys(each.query for each in assigned)]
        for each in assigned:
            if each.name in cells:
                conditions.append(self._equal(row, each.name, cells[each.name], each.sql))
            else:
                cells[each.name] = each.sql
        where = " and ".join(conditions)
        following = f"{source}{f' where {where}' if where else ''}"
        if cells:
            text = f"({_listed(cells)}) select {', '.join(cells.values())}{following}"
        else:
            text = f"select{following}" if source else "default values"
        conflict = "" if row.conflict is None else _conflict_sql(row.conflict)
        items = [f"{target.column(key)} as {_returned(key)}" for key in keys]
        if selection is not None:
            items.append(selection(target))
        # A later query can only depend on this query if this query returns something.
        returning = ", ".join(items) or "1"
        into = f"insert into {qualified(row.table)} as {target.alias}"
        self.queries.append(f"{name} as ({into} {text}{conflict} returning {returning})")
        self._conditions[name] = self._condition(row, name, SKIPPED)
        skips = row.conflict is not None and not row.conflict.update
        if not skips or not keys or row.conflict is None or not {*row.conflict.columns} <= {*cells}:
            return name
        # An insert does not return a row that it skips, so another query reads the existing row.
        found, existing = writer.alias(), Row(writer.alias())
        again, source = self._cells(row)
        cells = {**cells, **again}
        returned = ", ".join(f"{existing.column(key)} as {_returned(key)}" for key in keys)
        matches = [
            f"{existing.column(each)} {operator_sql('=', _equality(row.table, each))} {cells[each]}"
            for each in row.conflict.columns
        ]
        relation = f"{qualified(row.table)} as {existing.alias}"
        matches.append(f"not exists (select from {name})")
        self.queries.append(
            f"{found} as (select {', '.join(map(_returned, keys))} from {name} union all "
            f"select {returned}{f'{source} cross join' if source else ' from'} {relation} "
            f"where {' and '.join(matches)})"
        )
        self._conditions[found] = self._condition(row, found, NOT_FOUND)
        return found

    def _cells(self, row: NestedRow) -> tuple[dict[str, str], str]:
        """Return the SQL of the row's own values by column, and the ``from`` clause that they need."""
        if not isinstance(row.values, JsonRows):
            return {name: _cell_sql(self._writer, cell) for name, cell in row.values}, ""
        rows, json = row.values, Row(self._writer.alias())
        source = f" from {json_source_sql(self._writer, rows, json)}"
        return {each.name: _json_cell_sql(rows, each, json) for each in rows.columns}, source

    def _after(self) -> str:
        # PostgreSQL runs queries in any order if no other query reads them. If each insert reads the previous
        # one, they run in the order of the request's rows, and generated keys grow in this order.
        return f"(select pg_catalog.count(*) from {self._last_child}) {operator_sql('>=')} 0"

    def _number(self, row: NestedRow) -> int:
        return self._index if row.number is None else row.number

    def _condition(self, row: NestedRow, query: str, reason: str) -> str:
        """Return a condition that raises an error unless the CTE ``query`` returned one row."""
        count = f"(select pg_catalog.count(*) from {query})"
        raised = raise_sql(reason, count, self._number(row))
        return f"case when {count} {EQUAL} 1 then true else {raised} {EQUAL} 0 end"

    def _equal(self, row: NestedRow, name: str, one: str, other: str) -> str:
        equal = f"{one} {operator_sql('=', _equality(row.table, name))} {other}"
        reason = f"{CONFLICTING_VALUES}{name} in related rows".replace("~", "_")
        # PostgreSQL would evaluate a constant, and raise the error, during planning.
        number = f"coalesce(pg_catalog.length(({other})::text), 0)"
        raised = raise_sql(reason, number, self._number(row))
        return f"case when {equal} or {one} is null and {other} is null then true else {raised} {EQUAL} 0 end"


def _divided(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + MAX_UNION] for start in range(0, len(names), MAX_UNION)]


def _union_sql(columns: str, names: Sequence[str]) -> str:
    return " union all ".join(f"select {columns} from {each}" for each in names)


def _returned(column: str) -> str:
    return quote_identifier(f"~{column}")
