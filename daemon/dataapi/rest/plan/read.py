"""Plans reads of tables; pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from urllib.parse import quote

from dataapi.catalog.model import Catalog, Table
from dataapi.http import query_string as querystring
from dataapi.http.messages import Reply
from dataapi.rest import respond
from dataapi.rest.media_output import Form, csv_header
from dataapi.rest.negotiation import Media, MediaKind, as_bytes
from dataapi.rest.parse.preferences import Action, Count, applied
from dataapi.rest.parse.query import Selection, Values, content_range, parse, status_of
from dataapi.rest.plan.expressions import FixedText
from dataapi.rest.plan.plan import RestRequest, StatementPlan, StreamPlan, negotiate_media
from dataapi.rest.plan.select_items import with_column_names
from dataapi.rest.plan.tables import Relation
from dataapi.rest.respond import make_reply, with_alias_warning
from dataapi.rest.statements import (
    TO_COME,
    ResultRow,
    Total,
    compile_answer,
    compile_lines,
    lines_within,
    within,
)
from dataapi.sql.algebra import Parameter
from dataapi.sql.statement import Compiled, compile_matching

LONGEST_LOCATION = 2000
"""Characters of a query string beyond which ``Content-Location`` is omitted: proxies refuse long headers."""


@dataclass(frozen=True, slots=True)
class ReadShape:
    """What of a read decides its statements.

    :ivar head: whether the body is omitted.
    """

    schema: str
    table: str
    selection: Selection
    media: Media
    count: Count | None
    head: bool


def plan(request: RestRequest) -> StatementPlan | StreamPlan | Reply:
    """Plan a read of a table, or answer OPTIONS with the methods that the table supports."""
    table = request.role.tables.find(request.schema, request.target)
    if request.http.method == "OPTIONS":
        return Reply(200, (("Allow", allowed(request.catalog, table)),), b"")
    head = request.http.method == "HEAD"
    # As HTTP demands, ranges are for GET alone.
    selection, values = parse(request.http.query, None if head else request.http.headers.get("range"))
    media = negotiate_media(request, table, whole=selection.is_whole, lines=True)
    count = request.preferences.count
    if not head and media.explain is None and _streams(request, selection, media):
        return with_alias_warning(_streamed(request, table, selection, media, values), selection)
    shape = ReadShape(request.schema, request.target, selection, media, count, head)
    compiled = request.role.plan(shape, selection.size, lambda: _compile(request, table, shape))
    statements = [each.bind(values) for each in compiled]
    planned = StatementPlan(
        (statements[0],),
        True,
        lambda row: _finish(request, media, values.offset, row),
        estimated=statements[1] if len(statements) > 1 else None,
        estimated_beyond=request.project.db_max_rows,
        media=media,
    )
    return with_alias_warning(planned, selection)


def _compile(request: RestRequest, table: Table, shape: ReadShape) -> tuple[Compiled, ...]:
    most = request.project.db_max_rows
    planner = request.planner(shape.selection)
    relation = Relation.of(table)
    record, rows = planner.record(relation), planner.rows(relation)
    body = Form.NONE if shape.head and shape.media.explain is None else shape.media.body(table)
    total, bound = Total.NONE, None
    if shape.count is Count.EXACT or (shape.count is Count.ESTIMATED and most is None):
        total = Total.EXACT
    elif shape.count is Count.ESTIMATED:
        total, bound = Total.BOUNDED, Parameter(FixedText(str(most)), "bigint")
    answer = compile_answer(rows, with_column_names(record, body), body, total, bound)
    if body is not Form.NONE and shape.media.explain is None:
        answer = within(answer, request.project.max_answer)
    estimates = shape.count is not None and total is not Total.EXACT
    return (answer, compile_matching(rows)) if estimates else (answer,)


def _finish(request: RestRequest, media: Media, offset: int, row: ResultRow) -> Reply:
    status = status_of(offset, row.count, row.total)
    body = as_bytes(media, row.body)
    if media.single:
        if row.count != 1:
            raise respond.not_single(row.count)
        body = body[1:-1]  # without the array's brackets
    return make_reply(
        request,
        row,
        status,
        media.content_type,
        ("Content-Range", content_range(offset, row.count, row.total)),
        *_location(request),
        applied=applied(request.preferences, Action.READ),
        body=body,
    )


def _location(request: RestRequest) -> tuple[tuple[str, str], ...]:
    query = request.http.query
    if len(query) > LONGEST_LOCATION:
        return ()
    return (("Content-Location", location_of(request.target, query)),)


def location_of(table: str, query: str) -> str:
    """Return the canonical address of what was read: its parameters sorted by name."""
    parameters = sorted(querystring.pairs(query), key=itemgetter(0))
    listed = "&".join([f"{_escaped(name)}={_escaped(value)}" for name, value in parameters])
    return f"/{quote(table)}?{listed}" if listed else f"/{quote(table)}"


@lru_cache(maxsize=1024)
def _escaped(text: str) -> str:
    """Percent-encode a name or a value; clients repeat themselves."""
    return quote(text, safe="")


# ---------------------------------------------------------------- streams


def _streams(request: RestRequest, selection: Selection, media: Media) -> bool:
    """Whether rows are streamed: JSON lines always, CSV when nothing bounds their number.

    A streamed answer can have neither a count nor headers that a pre-request function sets.
    """
    if media.kind is MediaKind.LINES:
        return True
    project = request.project
    bounded = () in selection.limits or project.db_max_rows is not None
    needs_all_rows = request.preferences.count is not None or project.db_pre_request is not None
    return media.kind is MediaKind.CSV and not bounded and not needs_all_rows


def _streamed(
    request: RestRequest, table: Table, selection: Selection, media: Media, values: Values
) -> StreamPlan:
    relation = Relation.of(table)
    planner = request.planner(selection)
    record = planner.record(relation)
    form = Form.CSV if media.kind is MediaKind.CSV else Form.ARRAY

    def compile_() -> tuple[Compiled, ...]:
        lines = compile_lines(planner.rows(relation), record, form)
        return (lines_within(lines, request.project.longest_line),)

    shape = (request.schema, request.target, selection, form)
    [compiled] = request.role.plan(shape, selection.size, compile_)
    head = make_reply(
        request,
        TO_COME,
        200,
        media.content_type,
        *_location(request),
        applied=applied(request.preferences, Action.STREAM),
    )
    prefix = csv_header(record, _name).encode() if form is Form.CSV else b""
    return StreamPlan(compiled.bind(values), head, prefix, offset=values.offset)


def _name(key: Parameter) -> str:
    """Return a member's alias."""
    assert isinstance(key.source, FixedText), "members are named by texts of the shape"
    return key.source.text


# ---------------------------------------------------------------- methods


def allowed(catalog: Catalog, table: Table) -> str:
    """Return the value of ``Allow``: the methods that a table supports, whatever the role's privileges."""
    methods = ["OPTIONS", "GET", "HEAD"]
    if table.insertable:
        methods.append("POST")
        if table.updatable and catalog.row_key(table):
            methods.append("PUT")
    methods += ["PATCH"] * table.updatable + ["DELETE"] * table.deletable
    return ",".join(methods)
