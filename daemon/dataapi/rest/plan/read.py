"""Plans reads of tables."""

from __future__ import annotations

from dataapi.catalog.model import Catalog, Table
from dataapi.http.messages import Reply
from dataapi.rest.media_output import Form, csv_header
from dataapi.rest.negotiation import Media, MediaKind
from dataapi.rest.parse.preconditions import Compared
from dataapi.rest.parse.preferences import Count
from dataapi.rest.parse.request import PlanInput
from dataapi.rest.plan.expressions import FixedText
from dataapi.rest.plan.model import Plan, ReadResponse, StatementPlan, StreamPlan
from dataapi.rest.plan.role import RestRole
from dataapi.rest.plan.rows import with_column_names
from dataapi.rest.plan.tables import Relation
from dataapi.rest.statements import Total, compile_lines, compile_matching, compile_result
from dataapi.sql.algebra import Parameter
from dataapi.sql.statement import Compiled


def plan(role: RestRole, plan_input: PlanInput) -> Plan:
    table = role.tables.find(plan_input.schema, plan_input.target)
    if plan_input.method == "OPTIONS":
        return Reply(200, (("Allow", allowed(role.catalog, table)),), b"")
    media = role.media(plan_input, table, lines=True)
    streams = media.explain is None and _streams(role, plan_input, media)
    cache_control = role.catalog.directives.table(table.oid).rest_cache_control
    headers = (("Cache-Control", cache_control),) if cache_control else ()
    if streams and plan_input.method != "HEAD":
        return _streamed(role, plan_input, table, media, headers)
    has_body = plan_input.method != "HEAD" or media.explain is not None
    if not has_body and not streams:
        has_body = plan_input.builds_tag
    statement, *estimated = _compile(role, table, plan_input, media if has_body else None)
    return StatementPlan(
        (statement,),
        media,
        ReadResponse(headers),
        True,
        estimated=estimated[0] if estimated else None,
        estimated_beyond=role.project.db_max_rows,
        by_replica=plan_input.by_replica,
    )


def compile_current(role: RestRole, plan_input: PlanInput, table: Table, media: Media) -> Compiled:
    """Return the statement that reads the rows of a conditional write as a GET would, and counts them.

    Only ``Compared.CONTENT`` needs a body. Streams and plans have no entity tag.
    """
    counted = plan_input._replace(preferences=plan_input.preferences._replace(count=Count.EXACT))
    has_body = (
        plan_input.compared is Compared.CONTENT
        and media.explain is None
        and not _streams(role, plan_input, media)
    )
    [statement] = _compile(role, table, counted, media if has_body else None)
    return statement


def _compile(
    role: RestRole, table: Table, plan_input: PlanInput, media: Media | None
) -> tuple[Compiled, ...]:
    """Return the statement for a read and, for an estimated count, the statement to estimate the rows.

    If there is no media type, rows are only counted.
    """
    maximum, count = role.project.db_max_rows, plan_input.preferences.count
    planner = role.planner(Relation.of(table), plan_input.selection)
    record, rows = planner.record(), planner.rows()
    body = Form.NONE if media is None else media.body(table, role.tables.catalog.postgis)
    total, bound = Total.NONE, None
    if count is Count.EXACT or (count is Count.ESTIMATED and maximum is None):
        total = Total.EXACT
    elif count is Count.ESTIMATED:
        total, bound = Total.BOUNDED, Parameter(FixedText(str(maximum)), "bigint")
    max_bytes = role.project.max_answer if media is not None and media.explain is None else None
    output = with_column_names(record, body)
    statement = compile_result(rows, output, body, total, bound, max_bytes=max_bytes, dialect=role.dialect)
    estimates = count is not None and total is not Total.EXACT
    return (statement, compile_matching(rows, role.dialect)) if estimates else (statement,)


# ---------------------------------------------------------------- streams


def _streams(role: RestRole, plan_input: PlanInput, media: Media) -> bool:
    """Whether to stream rows: always for JSON lines, and for CSV if the number of rows is not limited.

    A streamed response cannot have a count, or headers that a pre-request function sets.
    """
    if media.kind is not MediaKind.CSV:
        return media.kind is MediaKind.LINES
    bounded = "" in plan_input.selection.shape.limits or role.project.db_max_rows is not None
    needs_all_rows = plan_input.preferences.count is not None or role.project.db_pre_request is not None
    return not bounded and not needs_all_rows


def _streamed(
    role: RestRole,
    plan_input: PlanInput,
    table: Table,
    media: Media,
    headers: tuple[tuple[str, str], ...],
) -> StreamPlan:
    planner = role.planner(Relation.of(table), plan_input.selection)
    record = planner.record()
    form = Form.CSV if media.kind is MediaKind.CSV else Form.ARRAY
    statement = compile_lines(planner.rows(), record, form, role.project.longest_line, role.dialect)
    prefix = csv_header(record, _name).encode() if form is Form.CSV else b""
    return StreamPlan(
        (statement,),
        media,
        prefix,
        by_replica=plan_input.by_replica,
        headers=headers,
    )


def _name(key: Parameter) -> str:
    assert isinstance(key.source, FixedText), "aliases are constants"
    return key.source.text


# ---------------------------------------------------------------- methods


def allowed(catalog: Catalog, table: Table) -> str:
    methods = ["OPTIONS", "GET", "HEAD"]
    if table.insertable:
        methods.append("POST")
        if table.updatable and catalog.row_key(table):
            methods.append("PUT")
    methods += ["PATCH"] * table.updatable + ["DELETE"] * table.deletable
    return ",".join(methods)
