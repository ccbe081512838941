"""Statements for REST responses: bodies in every format, counts, and settings made by functions."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.http.errors import ApiError
from dataapi.rest.media_output import Body, Content, Form, GeoJson, HandlerBody, Raw, body_parts, csv_header
from dataapi.rest.statements import SCALAR, ResultRow, Total, compile_lines, compile_result
from dataapi.sql.algebra import (
    CallArgument,
    ColumnRef,
    Compare,
    ComputedValue,
    Expression,
    FunctionCall,
    Join,
    Operator,
    OrderTerm,
    Rows,
)
from dataapi.sql.dialect import POSTGRESQL
from dataapi.sql.outputs import Output, Text, Value
from dataapi.sql.page_source import RowSource
from dataapi.sql.row_output import Many, Record, Spread
from dataapi.sql.statement import Row, compiled
from hypothesis import given
from hypothesis import strategies as st
from support.slots import parameter
from support.statements import Films, make_films

if TYPE_CHECKING:
    from support.postgres import Server

ID, TITLE = ColumnRef("id"), ColumnRef("title")
BY_ID = (OrderTerm(ID),)
GEOJSON = GeoJson.by(None)


@pytest.fixture(scope="module")
def films(server: Server) -> Films:
    """Return the films database. Changes are rolled back."""
    return make_films(server)


def record(**members: Expression | Output) -> Record:
    """Return a record whose member names are from the schema."""
    outputs = {
        name: output if isinstance(output, Many | Record) else Value(output)  # type: ignore[arg-type]
        for name, output in members.items()
    }
    return Record(tuple((Text(name), output) for name, output in outputs.items()))


def aliased(**members: Expression) -> Record:
    """Return a record whose member names are from the client."""
    return Record(tuple((parameter(name, "text"), Value(value)) for name, value in members.items()))


def run_result(films: Films, rows: Rows, output: Output, body: Body = Form.ARRAY, *more: Any) -> ResultRow:
    [row] = films.run(compile_result(rows, output, body, *more))
    return ResultRow(*row)


def body_of(films: Films, rows: Rows, output: Output, body: Body) -> str:
    result = run_result(films, rows, output, body).body
    assert result is not None
    return result if isinstance(result, str) else result.decode()


def film(films: Films, **named: Any) -> Rows:
    return Rows(films.table("film"), **{"order": BY_ID, **named})


def call(films: Films, name: str, *values: str, table: str | None = None, scalar: bool = False) -> Rows:
    function = films.function(name)
    arguments = tuple(
        CallArgument(argument.name, parameter(value, "json" if argument.type == 114 else "int"))
        for argument, value in zip(function.arguments, values, strict=False)
    )
    return Rows(
        films.table(table) if table else None,
        call=FunctionCall(function, arguments, value_column=SCALAR if scalar else ""),
    )


PLAIN = record(id=ID, title=TITLE)
VALUE = Value(ColumnRef(SCALAR))


# ---------------------------------------------------------------- formats


def test_rows_are_formatted_as_a_json_array(films: Films) -> None:
    assert body_of(films, film(films, limit=2), PLAIN, Form.ARRAY) == (
        '[{"id":1,"title":"Alpha"},{"id":2,"title":"Beta"}]'
    )


def test_nulls_are_stripped_at_every_level(films: Films) -> None:
    parts = Rows(films.table("part"), join=Join((("film_id", "id"),)))
    output = record(id=ID, seen=ColumnRef("seen"), parts=Many(parts, record(played=ColumnRef("played"))))
    where = Compare(ID, Operator.IN, parameter("{2,3}"))
    assert json.loads(body_of(films, film(films, where=where), output, Form.STRIPPED)) == [
        {"id": 2, "seen": False, "parts": [{}]},
        {"id": 3, "parts": [{"played": "extra"}]},
    ]


def test_rows_are_formatted_as_csv(films: Films) -> None:
    """Values use PostgreSQL's text format, and NULL is empty."""
    output = record(
        id=ID, title=TITLE, seen=ColumnRef("seen"), tags=ColumnRef("tags"), extra=ColumnRef("extra")
    )
    assert body_of(films, film(films), output, Form.CSV).split("\n") == [
        "id,title,seen,tags,extra",
        '1,Alpha,t,"{x,y}","{""a"": {""b"": [1, ""two""]}, ""n"": 1}"',
        '2,Beta,f,{},"{""n"": 2}"',
        "3,Gamma,,,",
        '4,"A ""quoted"", one",t,"{""a b""}",[1]',
    ]


def test_csv_without_rows_has_a_header(films: Films) -> None:
    no_films = film(films, where=Compare(ID, Operator.LT, parameter("0")))
    assert body_of(films, no_films, PLAIN, Form.CSV) == "id,title\n"


def test_csv_headers_are_quoted_if_necessary(films: Films) -> None:
    names = ["plain", "two words", "a,b", 'say "x"', "back\\slash", "line\nend"]
    for made in (record, aliased):
        output = made(**dict.fromkeys(names, ID))
        text = body_of(films, film(films, limit=1), output, Form.CSV)
        assert list(csv.reader(io.StringIO(text, newline=""))) == [names, ["1"] * len(names)]
        header = csv_header(output, lambda parameter: str(parameter.source))
        assert text.startswith(header)


def test_csv_header_includes_spread_members(films: Films) -> None:
    spread = Spread(film(films), Record(((Text("b"), Value(ID)),)))
    header = Record(((Text("a"), Value(ID)), spread, (Text("c"), Value(ID))))
    assert csv_header(header, str) == "a,b,c\n"
    assert csv_header(Record(()), str) == "\n"


_cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)


@given(rows=st.lists(st.tuples(_cells, _cells, st.none() | _cells), min_size=1, max_size=5))
def test_csv_can_be_parsed_by_python(films: Films, rows: list[tuple[str, str, str | None]]) -> None:
    """NULL and the empty text are both empty cells."""
    cells = [list(row) for row in rows]
    array = json.dumps([dict(zip("abc", row, strict=True)) for row in cells])
    function = films.function("several")
    writer = POSTGRESQL.writer()
    row = Row(writer.alias())
    source = (
        f"json_to_recordset({writer.slot(parameter(array, 'json'))}) as {row.alias}(a text, b text, c text)"
    )
    output = record(a=ColumnRef("a"), b=ColumnRef("b"), c=ColumnRef("c"))
    read_from = RowSource(row, source, Rows(None, call=FunctionCall(function)))
    body, item = body_parts(writer, output, read_from, Form.CSV)
    [result] = films.run(compiled(f"select {body} from {item}", writer))
    read = list(csv.reader(io.StringIO(result[0], newline="")))
    assert read == [["a", "b", "c"], *[[cell or "" for cell in row] for row in cells]]


def test_rows_are_formatted_as_a_geojson_feature_collection(films: Films) -> None:
    for output in (PLAIN, aliased(id=ID, title=TITLE)):
        collection = json.loads(body_of(films, film(films, limit=1), output, GEOJSON))
        assert collection == {
            "type": "FeatureCollection",
            "features": [{"type": "Feature", "geometry": None, "properties": {"id": 1, "title": "Alpha"}}],
        }
    no_films = film(films, where=Compare(ID, Operator.LT, parameter("0")))
    assert json.loads(body_of(films, no_films, PLAIN, GEOJSON))["features"] == []


def test_database_aggregates_can_produce_the_body(films: Films) -> None:
    whole = record(**{column.name: ColumnRef(column.name) for column in films.table("film").columns})
    titles = HandlerBody("public.titles", films.table("film"))
    assert body_of(films, film(films, limit=2), whole, titles) == "Alpha;Beta;"
    anything = HandlerBody("public.anything", None)
    assert body_of(films, film(films, limit=1), PLAIN, anything) == '{"id":1,"title":"Alpha"};'
    assert body_of(films, call(films, "several", "2", scalar=True), VALUE, anything) == "1;2;"
    with pytest.raises(ApiError, match="not implemented"):
        compile_result(film(films), aliased(id=ID), anything)


def test_rows_are_counted_without_a_body(films: Films) -> None:
    """HEAD requests and ``return=minimal`` use this form."""
    result = run_result(films, film(films, limit=3), PLAIN, Form.NONE, Total.EXACT)
    assert (result.body, result.rows, result.total) == (None, 3, 4)


# ---------------------------------------------------------------- counts


def test_totals_do_not_depend_on_the_page(films: Films) -> None:
    rows = film(films, limit=parameter("1", "bigint"), offset=parameter("1", "bigint"))
    assert run_result(films, rows, PLAIN).total is None
    assert run_result(films, rows, PLAIN, Form.ARRAY, Total.EXACT).total == 4
    assert run_result(films, rows, PLAIN, Form.ARRAY, Total.BOUNDED, parameter("2", "bigint")).total == 3
    assert run_result(films, rows, PLAIN, Form.ARRAY, Total.BOUNDED, parameter("9", "bigint")).total == 4
    unlimited = compile_result(film(films), PLAIN, Form.ARRAY, Total.EXACT)
    assert films.run(unlimited)[0][1:3] == (4, 4)
    assert unlimited.statement.text.count('"film"') == 1


# ---------------------------------------------------------------- functions


def test_function_value_has_several_formats(films: Films) -> None:
    rows = call(films, "scalar", "7", scalar=True)
    assert body_of(films, rows, VALUE, Form.VALUE) == "7"
    assert body_of(films, rows, VALUE, Raw(Content.TEXT)) == "7"
    assert body_of(films, rows, record(pgrst_scalar=ColumnRef(SCALAR)), Form.CSV) == "pgrst_scalar\n7"


def test_null_and_missing_rows_are_null_values(films: Films) -> None:
    rows = Rows(
        None, call=FunctionCall(films.function("scalar"), (CallArgument("value", None),), value_column=SCALAR)
    )
    assert body_of(films, rows, VALUE, Form.VALUE) == "null"
    assert run_result(films, rows, VALUE, Form.VALUE).rows == 1
    assert body_of(films, call(films, "several", "0", scalar=True), VALUE, Form.VALUE) == "null"
    assert body_of(films, call(films, "nothing", table="film"), PLAIN, Form.VALUE) == "null"


def test_function_values_can_be_filtered_and_limited(films: Films) -> None:
    where = Compare(ColumnRef(SCALAR), Operator.GT, parameter("1"))
    base = call(films, "several", "5", scalar=True)
    rows = Rows(None, call=base.call, where=where, order=(OrderTerm(ColumnRef(SCALAR), True),), limit=2)
    result = run_result(films, rows, VALUE, Form.VALUES, Total.EXACT)
    assert (result.body, result.rows, result.total) == ("[5,4]", 2, 4)


def test_unnamed_and_variadic_arguments_are_passed(films: Films) -> None:
    rows = call(films, "unnamed", '{"a":  1}', scalar=True)
    assert body_of(films, rows, VALUE, Form.VALUE) == '{"a":  1}'
    argument = CallArgument("numbers", parameter("{1,2,3}", "int[]"), variadic=True)
    rows = Rows(None, call=FunctionCall(films.function("total_of"), (argument,), value_column=SCALAR))
    assert body_of(films, rows, VALUE, Form.VALUE) == "6"


def test_volatile_function_is_called_once(films: Films) -> None:
    parts = Rows(films.table("part"), join=Join((("film_id", "id"),)))
    output = record(
        id=ID,
        label=ComputedValue(films.function("label")),
        parts=Many(parts, record(played=ColumnRef("played"))),
    )
    base = call(films, "changing", "3", table="film")
    where = Compare(TITLE, Operator.NEQ, parameter("Beta", "text"))
    rows = Rows(base.table, call=base.call, where=where, order=(OrderTerm(ID, True),), limit=1)
    for body in (Form.ARRAY, Form.NONE, Form.CSV):
        [row], calls = films.run_counting(compile_result(rows, output, body, Total.EXACT))
        assert (row[1:3], calls) == ((1, 2), ["changing"])
    shown = json.loads(body_of(films, rows, output, Form.ARRAY))
    assert shown == [{"id": 3, "label": "Gamma!", "parts": [{"played": "extra"}]}]
    scalar = compile_result(call(films, "scalar", "1", scalar=True), VALUE, Form.NONE, Total.EXACT)
    [row], calls = films.run_counting(scalar)
    assert (row[1:3], calls) == ((1, 1), ["scalar"])


def test_void_function_is_called(films: Films) -> None:
    assert run_result(films, call(films, "quiet", "0", scalar=True), VALUE, Form.NONE).rows == 1
    with pytest.raises(psycopg2.Error, match="refused 1"):
        run_result(films, call(films, "quiet", "1", scalar=True), VALUE, Form.NONE)


def test_functions_can_set_the_status_and_headers(films: Films) -> None:
    rows = call(films, "changing", "3", table="film")
    for body in (Form.ARRAY, Form.NONE, Form.CSV, GEOJSON):
        assert run_result(films, rows, PLAIN, body, Total.EXACT).response_status == "203"
    result = run_result(films, call(films, "scalar", "1", scalar=True), VALUE, Form.VALUE)
    assert (result.response_headers, result.response_status) == ('[{"X-Made": "yes"}]', None)
    shown = record(status=ComputedValue(films.function("status_of_row")))
    assert run_result(films, film(films), shown).response_status == "202"
    assert run_result(films, film(films), PLAIN).response_status is None


# ---------------------------------------------------------------- streamed lines


def test_streamed_rows_are_formatted_as_lines(films: Films) -> None:
    """Each row is a JSON value or a line of CSV."""
    rows = film(films, order=(OrderTerm(ID, descending=True),), limit=2)
    json_lines = films.run(compile_lines(rows, PLAIN, Form.ARRAY))
    assert [json.loads(line) for (line,) in json_lines] == [
        {"id": 4, "title": 'A "quoted", one'},
        {"id": 3, "title": "Gamma"},
    ]
    output = aliased(a=ID, b=ColumnRef("seen"))
    assert [json.loads(line) for (line,) in films.run(compile_lines(rows, output, Form.STRIPPED))] == [
        {"a": 4, "b": True},
        {"a": 3},
    ]
    assert films.run(compile_lines(rows, PLAIN, Form.CSV)) == [('4,"A ""quoted"", one"',), ("3,Gamma",)]
