"""Plans inserts of rows with related rows (``rest-features = nested-inserts``).

A member of an object contains related rows if no column has its name. Relationships have the names that
``select`` uses to embed them. One insert writes consecutive rows of an array if they have the same columns
and no related rows. The plan is the same for any number of these rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dataapi.catalog.model import Table
from dataapi.catalog.relationships import KeyRelationship
from dataapi.http.errors import ApiError
from dataapi.http.strict_json import encode
from dataapi.rest.nested_errors import placed
from dataapi.rest.parse.body import JSON, RelatedGroups, RowGroup, RowShape, WrittenRows, invalid, read_rows
from dataapi.rest.parse.nested import MAX_DEPTH, MAX_GROUPS, MemberPath, NestedBody
from dataapi.rest.parse.preferences import Missing, Resolution
from dataapi.rest.parse.query import Values, too_much
from dataapi.rest.parse.request import ApiRequest, PlanInput
from dataapi.rest.parse.select import Embed
from dataapi.rest.plan.embed_tree import find_relationship
from dataapi.rest.plan.role import RestRole
from dataapi.rest.plan.tables import Relation, RoleTables, json_column, known_columns
from dataapi.sql.algebra import Parameter
from dataapi.sql.mutations import JsonRows, NestedRow, NestedRows, OnConflict, RelatedRow

_Row = Mapping[str, Any]


def _not_implemented(details: str, hint: str | None = None) -> ApiError:
    return ApiError(400, "PGRST127", "Feature not implemented", details=details, hint=hint)


def relationship_of(tables: RoleTables, table: Table, member: str) -> KeyRelationship:
    """Return the relationship that a member names, such as ``customer`` or ``customer!order_customer_fkey``.

    :raises ApiError: The errors of ``find_relationship``, and PGRST127 (400) for a relationship without a
        foreign key between the two tables.
    """
    name, _, hint = member.partition("!")
    found = find_relationship(tables, Relation.of(table), Embed(name, (), hint=hint or None))
    if isinstance(found, KeyRelationship):
        return found
    raise _not_implemented(
        f"'{member}' is not related to '{table.name}' by a foreign key between the two tables.",
        "Insert rows of the junction table as related rows.",
    )


def unknown_column(table: Table, name: str) -> ApiError:
    return ApiError(
        400, "PGRST204", f"Could not find the '{name}' column of '{table.name}' in the schema cache"
    )


# ---------------------------------------------------------------- groups of the body's rows


def with_groups(role: RestRole, request: ApiRequest) -> ApiRequest:
    """Return the request with its rows divided into groups.

    :raises ApiError: A member is not a column or relationship, or the rows exceed a limit. PGRST127 (400) if
        the database is distributed.
    """
    body, plan_input = request.nested, request.input
    assert body is not None, "the request has a body that may contain related rows"
    table = role.tables.find(plan_input.schema, plan_input.target)
    if not _has_related(body, table, plan_input.columns):
        payload = read_rows(body.body, JSON, plan_input.columns)
        values = request.values._replace(body=payload.text)
        return request._replace(input=plan_input._replace(rows=payload.shape), values=values)
    if role.catalog.clustered:
        raise _not_implemented(
            "Related rows cannot be inserted together in a distributed database.",
            "Send the requests for the tables as a batch.",
        )
    grouping = _Grouping(role.tables, body, plan_input)
    groups = grouping.groups(grouping.root(table, plan_input.columns), body.rows, "", many=body.many)
    columns = tuple(sorted({name for group in groups for name in group.columns}))
    rows = RowShape(columns, body.many, groups=groups)
    values = request.values._replace(groups=tuple(grouping.written))
    return request._replace(input=plan_input._replace(rows=rows), values=values)


def _has_related(body: NestedBody, table: Table, columns: tuple[str, ...] | None) -> bool:
    return any(
        (value is None or isinstance(value, dict | list)) and table.column(name) is None
        for row in body.rows
        for name, value in row.items()
        if columns is None or name in columns
    )


@dataclass(slots=True)
class _Level:
    """The table of the rows at one path in the body.

    :ivar columns: names in the ``columns`` parameter, None if absent.
    :ivar shared: key columns if several rows may have the same parent at this path, else empty.
    """

    table: Table
    path: MemberPath
    columns: tuple[str, ...] | None
    shared: tuple[str, ...] = ()
    members: dict[str, tuple[KeyRelationship, _Level]] = field(default_factory=dict)


_Key = tuple[int, tuple[str, ...], str]
"""OID of a table, columns of a unique key, and the key's values in JSON."""


def _key(level: _Level, row: _Row, place: str) -> _Key | None:
    values = [row.get(name) for name in level.shared]
    if not values or None in values:  # in a unique key, NULLs are distinct
        return None
    try:
        return level.table.oid, level.shared, encode(values)
    except RecursionError:
        raise placed(invalid("A value is nested too deeply"), place) from None


class _Grouping:
    def __init__(self, tables: RoleTables, body: NestedBody, plan_input: PlanInput) -> None:
        self._tables = tables
        self._body = body
        self._resolves = plan_input.preferences.resolution in (Resolution.MERGE, Resolution.IGNORE)
        self._shared: dict[_Key, tuple[RowGroup, _Row, str]] = {}
        self.written: list[WrittenRows] = []

    def root(self, table: Table, columns: tuple[str, ...] | None) -> _Level:
        level = _Level(table, (), columns)
        self._check_columns(level)
        for path in (*self._body.columns, *self._body.conflicts):
            below = level
            for name in path:
                _, below = self._related(below, name)
        return level

    def _check_columns(self, level: _Level) -> None:
        for name in level.columns or ():
            if level.table.column(name) is None:
                self._related(level, name)

    def _related(self, level: _Level, member: str) -> tuple[KeyRelationship, _Level]:
        related = level.members.get(member)
        if related is None:
            path = (*level.path, member)
            if len(path) > MAX_DEPTH:
                raise too_much(f"At most {MAX_DEPTH} levels of related rows are allowed")
            relationship = relationship_of(self._tables, level.table, member)
            conflict = known_columns(relationship.target, self._body.conflicts.get(path, ()))
            shared = conflict if self._resolves and relationship.outgoing else ()
            below = _Level(relationship.target, path, self._body.columns.get(path), shared)
            related = level.members[member] = relationship, below
            self._check_columns(below)
        return related

    def groups(self, level: _Level, rows: Sequence[_Row], place: str, *, many: bool) -> tuple[RowGroup, ...]:
        groups: list[RowGroup] = []
        run: list[_Row] = []
        for index, row in enumerate(rows):
            here = f"{place}[{index}]" if many else place
            key = _key(level, row, here)
            shared = self._shared_group(key, row, here)
            if shared is not None:
                groups.append(shared)
                continue
            columns, members = self._divided(level, row, here)
            related = [each for each in members if each.groups]
            if run and not related and columns == groups[-1].columns:
                run.append(row)
                continue
            run = [] if related else [row]
            group = RowGroup(len(self.written), columns, many and not related, tuple(related))
            if len(self.written) == MAX_GROUPS:
                raise too_much(
                    f"At most {MAX_GROUPS} rows are allowed. A row without related rows is not counted if it"
                    " has the same members as the previous row in its array"
                )
            self.written.append(WrittenRows(run or [row], here, level.table.name))
            groups.append(group)
            if key is not None:
                self._shared[key] = group, row, here
        return tuple(groups)

    def _shared_group(self, key: _Key | None, row: _Row, place: str) -> RowGroup | None:
        """Return the group of an earlier equal row, None if there is none.

        :raises ApiError: PGRST102 (400) if an earlier row has the same key but differs.
        """
        known = None if key is None else self._shared.get(key)
        if known is None:
            return None
        group, other, its_place = known
        if row != other:
            raise placed(invalid(f"This object and {its_place} have the same key, but differ"), place)
        return group

    def _divided(self, level: _Level, row: _Row, place: str) -> tuple[tuple[str, ...], list[RelatedGroups]]:
        columns, related = list[str](), list[RelatedGroups]()
        for name, value in row.items():
            if level.columns is not None and name not in level.columns:
                continue
            if level.table.column(name) is not None:
                columns.append(name)
            else:
                related.append(self._member(level, name, value, f"{place}.{name}" if place else name))
        return tuple(sorted(columns)), related

    def _member(self, level: _Level, name: str, value: Any, place: str) -> RelatedGroups:
        try:
            relationship, below = self._related(level, name)
        except ApiError as error:
            if error.code == "PGRST200" and not isinstance(value, dict | list):
                error = unknown_column(level.table, name)
            raise placed(error, place) from None
        many = not relationship.to_one
        rows = [] if value is None else value if many else [value]
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
            raise placed(invalid("Expected an array of objects" if many else "Expected an object"), place)
        groups = self.groups(below, rows, place, many=many)
        conflict = self._body.conflicts.get(below.path) if self._resolves else None
        return RelatedGroups(name, groups, below.columns, conflict)


# ---------------------------------------------------------------- the insert


@dataclass(frozen=True, slots=True)
class GroupText:
    """The rows of a group as JSON, with the given columns."""

    group: int
    columns: tuple[str, ...]
    many: bool

    def bind(self, values: Values) -> str:
        """Return the JSON text.

        :raises ApiError: PGRST102 (400) if a value is nested too deeply.
        """
        group = values.groups[self.group]
        rows = [{name: row[name] for name in self.columns} for row in group.rows]
        try:
            return encode(rows if self.many else rows[0])
        except RecursionError:
            raise placed(invalid("A value is nested too deeply"), group.place) from None


def nested_rows(role: RestRole, plan_input: PlanInput, conflict: OnConflict | None) -> NestedRows:
    return _NestedPlanner(role, plan_input).rows(conflict)


class _NestedPlanner:
    def __init__(self, role: RestRole, plan_input: PlanInput) -> None:
        self._role = role
        self._input = plan_input
        preferences = plan_input.preferences
        self._skips = preferences.resolution is Resolution.IGNORE
        self._has_defaults = preferences.missing is Missing.DEFAULT

    def rows(self, conflict: OnConflict | None) -> NestedRows:
        table = self._role.tables.find(self._input.schema, self._input.target)
        groups = self._input.rows.groups
        return NestedRows(
            tuple(self._row(table, each, self._input.columns, conflict, root=True) for each in groups)
        )

    def _row(
        self,
        table: Table,
        group: RowGroup,
        columns: tuple[str, ...] | None,
        conflict: OnConflict | None,
        assigned: tuple[str, ...] = (),
        *,
        root: bool = False,
    ) -> NestedRow:
        parents, children = list[RelatedRow](), list[RelatedRow]()
        for each in group.related:
            relationship = relationship_of(self._role.tables, table, each.member)
            own, theirs = zip(*relationship.pairs, strict=True)
            if relationship.outgoing:
                assigned += own
            key = None if each.conflict is None else OnConflict(each.conflict, ())
            for inner in each.groups:
                below = () if relationship.outgoing else theirs
                row = self._row(relationship.target, inner, each.columns, key, below)
                related = RelatedRow(row, tuple(zip(theirs, own, strict=True)))
                (parents if relationship.outgoing else children).append(related)
        written = self._with_missing(table, group, columns, assigned)
        rows = JsonRows(
            Parameter(GroupText(group.number, group.columns, group.many), 'pg_catalog."json"'),
            group.many,
            tuple([json_column(self._role.catalog, table, name) for name in written]),
        )
        if conflict is not None:
            conflict = self._conflict(conflict, tuple(dict.fromkeys((*written, *assigned))), root=root)
        return NestedRow(table, rows, tuple(parents), tuple(children), conflict, group.number)

    def _with_missing(
        self, table: Table, group: RowGroup, columns: tuple[str, ...] | None, assigned: tuple[str, ...]
    ) -> tuple[str, ...]:
        if columns is None or self._has_defaults:
            return group.columns
        missing = {name for name in columns if table.column(name) is not None} - {*assigned}
        return tuple(sorted({*group.columns, *missing}))

    def _conflict(self, conflict: OnConflict, columns: tuple[str, ...], *, root: bool) -> OnConflict | None:
        key = conflict.columns
        if root and self._input.conflict is None and not {*key} <= {*columns}:
            # A primary key that the request does not set is new and cannot conflict. An ON CONFLICT clause
            # would require more privileges.
            return None
        if self._skips:
            return OnConflict(key, ())
        return replace(conflict, update=tuple([name for name in columns if name not in key]) or columns)
