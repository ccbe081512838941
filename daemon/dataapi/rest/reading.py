"""Reads of tables, planned: what the request asks of which rows, in which form; pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from urllib.parse import quote

from dataapi.catalog.model import Catalog, Table
from dataapi.query.algebra import Parameter
from dataapi.query.answers import TO_COME, Answered, Total, compile_answer, compile_lines
from dataapi.query.bodies import Form, csv_header
from dataapi.query.refused import lines_within, within
from dataapi.query.sql import Compiled, compile_matching
from dataapi.rest import refusals
from dataapi.rest.aliases import warned
from dataapi.rest.context import Context, Planned, Streamed, bind
from dataapi.rest.media import Kind, Media
from dataapi.rest.negotiating import as_bytes, negotiated
from dataapi.rest.reply import make_reply
from dataapi.rest.request.preferences import Action, Count, applied
from dataapi.rest.request.ranges import content_range, status_of
from dataapi.rest.resolve.fields import Constant
from dataapi.rest.resolve.naming import named_for
from dataapi.rest.resolve.relations import Relation
from dataapi.rest.resolve.selection import Selection, Values, parse
from dataapi.web import querystring
from dataapi.web.messages import Reply

LONGEST_LOCATION = 2000
"""Characters of a query string beyond which no ``Content-Location`` is told: proxies refuse long headers."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a read decides its statements.

    :ivar head: whether no body is wanted.
    """

    schema: str
    table: str
    selection: Selection
    media: Media
    count: Count | None
    head: bool


def plan(context: Context) -> Planned | Streamed | Reply:
    """Plan a read of a table, or answer what may be done with the table."""
    table = context.role.tables.find(context.schema, context.target)
    if context.request.method == "OPTIONS":
        return Reply(200, (("Allow", allowed(context.catalog, table)),), b"")
    head = context.request.method == "HEAD"
    # As HTTP demands, ranges are for GET alone.
    selection, values = parse(context.request.query, None if head else context.request.headers.get("range"))
    media = negotiated(context, table, whole=selection.is_whole, lines=True)
    count = context.preferences.count
    if not head and media.explain is None and _streams(context, selection, media):
        return warned(_streamed(context, table, selection, media, values), selection)
    shape = Shape(context.schema, context.target, selection, media, count, head)
    compiled = context.role.plan(shape, selection.size, lambda: _compile(context, table, shape))
    statements = [bind(each, values) for each in compiled]
    planned = Planned(
        (statements[0],),
        True,
        lambda row: _finish(context, media, values.offset, row),
        estimated=statements[1] if len(statements) > 1 else None,
        estimated_beyond=context.project.db_max_rows,
        media=media,
    )
    return warned(planned, selection)


def _compile(context: Context, table: Table, shape: Shape) -> tuple[Compiled, ...]:
    most = context.project.db_max_rows
    selecting = context.selecting(shape.selection)
    relation = Relation.of(table)
    record, rows = selecting.record(relation), selecting.rows(relation)
    body = Form.NONE if shape.head and shape.media.explain is None else shape.media.body(table)
    total, bound = Total.NONE, None
    if shape.count is Count.EXACT or (shape.count is Count.ESTIMATED and most is None):
        total = Total.EXACT
    elif shape.count is Count.ESTIMATED:
        total, bound = Total.BOUNDED, Parameter(Constant(str(most)), "bigint")
    answer = compile_answer(rows, named_for(record, body), body, total, bound)
    if body is not Form.NONE and shape.media.explain is None:
        answer = within(answer, context.project.max_answer)
    estimates = shape.count is not None and total is not Total.EXACT
    return (answer, compile_matching(rows)) if estimates else (answer,)


def _finish(context: Context, media: Media, offset: int, row: Answered) -> Reply:
    status = status_of(offset, row.count, row.total)
    body = as_bytes(media, row.body)
    if media.single:
        if row.count != 1:
            raise refusals.not_single(row.count)
        body = body[1:-1]  # without the array's brackets
    return make_reply(
        context,
        row,
        status,
        media.content_type,
        ("Content-Range", content_range(offset, row.count, row.total)),
        *_location(context),
        applied=applied(context.preferences, Action.READ),
        body=body,
    )


def _location(context: Context) -> tuple[tuple[str, str], ...]:
    query = context.request.query
    if len(query) > LONGEST_LOCATION:
        return ()
    return (("Content-Location", location_of(context.target, query)),)


def location_of(table: str, query: str) -> str:
    """Return the one address of what was read: its parameters in the order of their names."""
    parameters = sorted(querystring.pairs(query), key=itemgetter(0))
    listed = "&".join([f"{_escaped(name)}={_escaped(value)}" for name, value in parameters])
    return f"/{quote(table)}?{listed}" if listed else f"/{quote(table)}"


@lru_cache(maxsize=1024)
def _escaped(text: str) -> str:
    """Return a name or a value as it stands in an address; clients send the same ones again and again."""
    return quote(text, safe="")


# ---------------------------------------------------------------- streams


def _streams(context: Context, selection: Selection, media: Media) -> bool:
    """Whether rows are sent while they come: as lines always, as CSV when nothing bounds their number.

    Neither how many there are nor what a pre-request function says of the answer can be told then.
    """
    if media.kind is Kind.LINES:
        return True
    project = context.project
    bounded = "" in selection.limited or project.db_max_rows is not None
    told = context.preferences.count is not None or project.db_pre_request is not None
    return media.kind is Kind.CSV and not bounded and not told


def _streamed(context: Context, table: Table, selection: Selection, media: Media, values: Values) -> Streamed:
    relation = Relation.of(table)
    selecting = context.selecting(selection)
    record = selecting.record(relation)
    form = Form.CSV if media.kind is Kind.CSV else Form.ARRAY

    def compile_() -> tuple[Compiled, ...]:
        lines = compile_lines(selecting.rows(relation), record, form)
        return (lines_within(lines, context.project.longest_line),)

    shape = (context.schema, context.target, selection, form)
    [compiled] = context.role.plan(shape, selection.size, compile_)
    head = make_reply(
        context,
        TO_COME,
        200,
        media.content_type,
        *_location(context),
        applied=applied(context.preferences, Action.STREAM),
    )
    prefix = csv_header(record, _name).encode() if form is Form.CSV else b""
    return Streamed(bind(compiled, values), head, prefix, offset=values.offset)


def _name(key: Parameter) -> str:
    """Return the name that a client gave to a member."""
    assert isinstance(key.source, Constant), "members are named by texts of the shape"
    return key.source.text


# ---------------------------------------------------------------- methods


def allowed(catalog: Catalog, table: Table) -> str:
    """Return the value of ``Allow``: what can be done with a table, whatever the role may."""
    methods = ["OPTIONS", "GET", "HEAD"]
    if table.insertable:
        methods.append("POST")
        if table.updatable and catalog.row_key(table):
            methods.append("PUT")
    methods += ["PATCH"] * table.updatable + ["DELETE"] * table.deletable
    return ",".join(methods)
