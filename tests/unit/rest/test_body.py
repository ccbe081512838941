"""The rows and columns of a request body."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.rest.parse.body import NO_ROWS, Payload, RowShape, check_keys, read_objects, read_rows
from hypothesis import given
from hypothesis import strategies as st

CSV = "text/csv; charset=utf-8"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def rejection(body: bytes, content_type: str | None = None) -> str:
    with pytest.raises(ApiError) as caught:
        read_rows(body, content_type, None)
    assert (caught.value.status, caught.value.code) == (400, "PGRST102")
    return caught.value.message


def test_json_is_passed_unchanged_with_its_columns() -> None:
    """Columns are sorted, so the order of keys does not affect the statement."""
    text = '[{"b": 1,  "a": 2}, {"a": 3, "b": 1.0}]'
    assert read_rows(text.encode(), None, None) == Payload(RowShape(("a", "b"), True), text)
    assert read_rows(b'{"b": 1, "b": 2}', "application/json; charset=utf-8", None).shape.columns == ("b",)
    assert read_rows(b"[]", "APPLICATION/JSON", None) == NO_ROWS
    assert read_rows(b" [ ] ", None, None) == read_rows(b"7", None, None) == NO_ROWS


def test_body_is_not_parsed_if_columns_are_given() -> None:
    assert read_rows(b' {"a": ', None, ("b", "a", "b")) == Payload(RowShape(("a", "b"), False), ' {"a": ')
    assert read_rows(b"\n[nonsense", None, ("a",)).shape.many


@pytest.mark.parametrize(
    "body", ["", "{", "[1,]", '{"a": Infinity}', '{"a": "\t"}', "{'a': 1}", '{"a": 1} x', "\ufeff{}"]
)
def test_invalid_json_is_rejected(body: str) -> None:
    assert rejection(body.encode()) == "Empty or invalid json"


def test_form_is_one_object_of_strings() -> None:
    form = "application/x-www-form-urlencoded"
    payload = read_rows(b"a=1+2&b=%C3%A4&a=3&c", form, None)
    assert (json.loads(payload.text), payload.shape.many) == ({"a": "3", "b": "ä", "c": ""}, False)
    assert payload.shape.columns == ("a", "b", "c")
    assert read_rows(b"", form, None) == Payload(RowShape((), False, as_text=True), "{}")
    assert read_rows(b"a=1&b=2", form, ("a",)).shape.columns == ("a",)


def test_csv_has_a_header_and_null() -> None:
    """Quotes, commas, newlines and empty lines follow RFC 4180. Quoted cells are strings."""
    body = 'a,"b ""c"""\r\n1,\r\n\r\nNULL,"x,\n""y"""\r\n"NULL ",null\r\n"","NULL"\n"a,""NULL"",",""""\r\n'
    payload = read_rows(body.encode(), CSV, None)
    assert json.loads(payload.text) == [
        {"a": "1", 'b "c"': None},
        {"a": None, 'b "c"': 'x,\n"y"'},
        {"a": "NULL ", 'b "c"': "null"},
        {"a": "", 'b "c"': "NULL"},
        {"a": 'a,"NULL",', 'b "c"': '"'},
    ]
    assert (payload.shape.many, payload.shape.columns) == (True, ("a", 'b "c"'))
    assert read_rows(b"a,b\n", CSV, None) == NO_ROWS
    assert read_rows("\ufeffa,b\n1,2".encode(), CSV, None).shape.columns == ("a", "b")
    assert read_rows(b"a,b\n1,2", CSV, ("b",)).shape.columns == ("b",)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", 'parse error (not enough input) at ""'),
        (b"\n\n", 'parse error (not enough input) at ""'),
        (b"a,b\n1", "All lines must have same number of fields"),
        (b"a,b\n1,2,3", "All lines must have same number of fields"),
        (b'a,b\n1,"2', "parse error (unexpected end of data) in line 2"),
        (b'a,b\n1,"2"3', "parse error (',' expected after '\"') in line 2"),
        (b"a,b\n1,\xff", "Empty or invalid json"),
    ],
)
def test_malformed_csv_is_rejected(body: bytes, message: str) -> None:
    assert rejection(body, CSV) == message


def test_csv_cells_may_be_long() -> None:
    payload = read_rows(b'a\n"' + b"x" * 500_000 + b'"', CSV, None)
    assert len(json.loads(payload.text)[0]["a"]) == 500_000


@given(
    header=st.lists(TEXTS, min_size=1, max_size=4, unique=True).filter(lambda names: names != [""]),
    data=st.data(),
)
def test_any_csv_is_read_as_it_was_written(header: list[str], data: st.DataObject) -> None:
    cells = st.lists(TEXTS, min_size=len(header), max_size=len(header))
    lines = data.draw(st.lists(cells.filter(lambda line: line != [""]), min_size=1, max_size=5))
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([header, *lines])
    payload = read_rows(written.getvalue().encode(), CSV, None)
    assert json.loads(payload.text) == [dict(zip(header, line, strict=True)) for line in lines]
    assert payload.shape.columns == tuple(sorted(header))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from([None, ("a",)]))
def test_any_json_is_read_or_rejected(value: Any, columns: tuple[str, ...] | None) -> None:
    body = json.dumps(value)
    try:
        payload = read_rows(body.encode(), None, columns)
    except ApiError as error:
        assert error.message == "All object keys must match"  # noqa: PT017 - either outcome is valid
        assert isinstance(value, list)
        assert not all(isinstance(row, dict) and row.keys() == value[0].keys() for row in value)
        return
    if columns is not None:
        assert payload.shape.columns == columns
    elif isinstance(value, dict) or (isinstance(value, list) and value):
        assert payload.text == body
        assert payload.shape.columns == tuple(sorted(value if isinstance(value, dict) else value[0]))
    else:
        assert payload == NO_ROWS
    assert payload.shape.many is not isinstance(value, dict)


def test_common_members_of_objects_are_returned() -> None:
    shape = read_objects(b'[{"id": 1, "a": 2}, {"id": 2, "b": 3}]', None).shape
    assert shape == RowShape(("a", "b", "id"), True, common=("id",))
    assert read_objects(b'{"id": 1, "a": 2}', None).shape == RowShape(("a", "id"), False, common=("a", "id"))
    assert read_objects(b"[]", None).shape == RowShape((), True)


@pytest.mark.parametrize("ids", [[1, 1], ["1", 1], [9007199254740993, 9007199254740993]])
def test_two_objects_with_the_same_key_are_rejected(ids: list[Any]) -> None:
    body = json.dumps([{"id": each} for each in ids]).encode()
    with pytest.raises(ApiError, match="All objects must differ in the key columns: id"):
        check_keys(read_objects(body, None).objects, ("id",))
    check_keys(read_objects(b'[{"id": 9007199254740993}, {"id": 9007199254740992}]', None).objects, ("id",))
