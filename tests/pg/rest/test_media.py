"""Built-in and database-defined media types of responses."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from support import documents
from support.service import Answer, Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

OBJECT = "application/vnd.pgrst.object+json"
ARRAY = "application/vnd.pgrst.array+json"


SCHEMA = documents.read("tests/pg/data/media.sql")


async def get(service: Service, target: str, accept: str, **named: Any) -> Answer:
    return await service.rest("GET", target, headers={"accept": accept}, **named)


def summary(response: Answer) -> tuple[int, str, str]:
    return response.status, response.headers["content-type"], response.text


# ---------------------------------------------------------------- built in


async def test_csv_has_a_header_and_quotes_special_values(service: Service) -> None:
    for target in ("shape", "shape?select=id,name"):
        assert summary(await get(service, target, "text/csv")) == (
            200,
            "text/csv; charset=utf-8",
            "id,name\n1,x",
        )
    response = await get(service, "rpc/entries?select=n:name,id", "text/csv")
    assert list(csv.reader(io.StringIO(response.text))) == [
        ["n", "id"],
        ["a", "1"],
        ["", "2"],
        ['c,"d"', "3"],
    ]
    assert (await get(service, "rpc/plain_number", "text/csv")).text == "pgrst_scalar\n42"


async def test_single_object_is_returned_without_an_array(service: Service) -> None:
    response = await get(service, "entry?id=eq.2", OBJECT)
    assert (response.status, response.body) == (200, {"id": 2, "name": None})
    assert response.headers["content-type"] == f"{OBJECT}; charset=utf-8"
    response = await get(service, "rpc/entries?id=eq.2", f"{OBJECT};nulls=stripped")
    assert (response.status, response.body) == (200, {"id": 2})
    assert response.headers["content-type"] == f"{OBJECT};nulls=stripped; charset=utf-8"
    response = await get(service, "rpc/entries?id=gt.1", OBJECT)
    assert (response.status, response.body["details"]) == (406, "The result contains 2 rows")
    assert summary(await get(service, "rpc/plain_number", OBJECT))[2] == "42"


async def test_nulls_are_stripped_from_arrays(service: Service) -> None:
    for target in ("entry?order=id&limit=2", "rpc/entries?limit=2"):
        response = await get(service, target, f"{ARRAY};nulls=stripped")
        assert response.body == [{"id": 1, "name": "a"}, {"id": 2}]
        assert response.headers["content-type"] == f"{ARRAY};nulls=stripped; charset=utf-8"


async def test_nulls_are_stripped_from_json_values(service: Service) -> None:
    """Values of other types are unchanged."""
    for accept in (f"{OBJECT};nulls=stripped", f"{ARRAY};nulls=stripped"):
        assert (await get(service, "rpc/nested", accept)).body == {"b": 1}
        assert (await get(service, "rpc/plain_number", accept)).body == 42
    assert (await get(service, "rpc/pages", f"{ARRAY};nulls=stripped")).body == ["a", "b"]
    assert (await get(service, "rpc/nested", "application/json")).body == {"a": None, "b": 1}


@pytest.mark.own_sql
async def test_rows_are_returned_as_geojson_features(service: Service) -> None:
    for target in ("entry?id=eq.1", "rpc/entries?id=eq.1"):
        response = await get(service, target, "application/geo+json")
        assert (response.status, response.headers["content-type"]) == (
            200,
            "application/geo+json; charset=utf-8",
        )
        feature = {"type": "Feature", "properties": {"id": 1, "name": "a"}}
        assert response.body == {"type": "FeatureCollection", "features": [feature]}


async def test_json_lines_are_streamed(service: Service) -> None:
    for target in ("entry?order=id&id=lt.3", "rpc/entries?id=lt.3"):
        response = await get(service, target, "application/x-ndjson")
        assert (response.status, response.headers["content-type"]) == (200, "application/x-ndjson")
        assert [json.loads(line) for line in response.text.splitlines()] == [
            {"id": 1, "name": "a"}, {"id": 2, "name": None},
        ]  # fmt: skip
    assert (await get(service, "rpc/pages", "application/x-ndjson")).text == '"a"\n"b"\n'
    assert (await get(service, "rpc/plain_number", "application/x-ndjson")).status == 406


@pytest.mark.parametrize(
    ("target", "accept", "content_type", "content"),
    [
        ("plain_text", "text/plain", "text/plain; charset=utf-8", b'a "plain" text'),
        ("plain_text", "application/octet-stream", "application/octet-stream", b'a "plain" text'),
        ("plain_number", "text/plain", "text/plain; charset=utf-8", b"42"),
        ("plain_xml", "text/xml", "text/xml; charset=utf-8", b"<a/>"),
        ("plain_bytes", "application/octet-stream", "application/octet-stream", b"\x00\xff"),
        ("no_bytes", "application/octet-stream", "application/octet-stream", b""),
        ("page", "text/html", "text/html", "<p>é</p>".encode()),
        ("page", "text/html,application/xhtml+xml,*/*;q=0.8", "text/html", "<p>é</p>".encode()),
        ("image?name=a.png", "image/png", "image/png", bytes.fromhex("89504e470d0a1a0a00ff")),
        ("image?name=a.png", "image/png, */*", "image/png", bytes.fromhex("89504e470d0a1a0a00ff")),
        ("image?name=none", "image/png", "image/png", b""),
        ("page", "*/*", "application/json; charset=utf-8", '"<p>é</p>"'.encode()),
        ("any_bytes", "*/*", "application/octet-stream", b"any"),
        ("any_bytes", "app/bingo", "application/octet-stream", b"any"),
    ],
)
async def test_function_value_is_returned_unchanged(
    service: Service, server: Server, target: str, accept: str, content_type: str, content: bytes
) -> None:
    """A domain's name is the media type of its values."""
    if target == "plain_xml":
        server.require("libxml")
    response = await get(service, f"rpc/{target}", accept)
    assert (response.status, response.headers["content-type"], response.content) == (
        200,
        content_type,
        content,
    )


XML = """
create domain "application/atom+xml" as xml;
create table entry (id int primary key);
insert into entry values (1);
grant select on entry to anon;
create function latin() returns xml stable language sql
    as $$ select '<?xml version="1.0" encoding="ISO-8859-1"?><a>\u00e9</a>'::xml $$;
create function atom_step(state xml, one entry) returns xml immutable language sql
    as $$ select '<?xml version="1.1" encoding="ISO-8859-1" standalone="yes"?><a>\u00e9</a>'::xml $$;
create function atom_end(state xml) returns "application/atom+xml" immutable language sql as 'select state';
create aggregate atom_rows (entry) (sfunc = atom_step, stype = xml, finalfunc = atom_end);
"""


@pytest.fixture(scope="module")
def xml_service(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database whose XML declares an encoding other than UTF-8."""
    server.require("libxml")
    with serving(reactor, server.create_database(XML)) as one:
        yield one


@pytest.mark.parametrize(
    ("target", "accept", "text"),
    [
        ("rpc/latin", "text/xml", "<a>\u00e9</a>"),
        ("rpc/latin", "text/plain", "<a>\u00e9</a>"),
        ("entry", "application/atom+xml", '<?xml version="1.1" standalone="yes"?><a>\u00e9</a>'),
    ],
)
async def test_xml_declaration_does_not_contradict_the_encoding(
    xml_service: Service, target: str, accept: str, text: str
) -> None:
    """Bodies are always UTF-8, whatever encoding the stored document declares."""
    response = await get(xml_service, target, accept)
    assert (response.status, response.content) == (200, text.encode())


@pytest.mark.parametrize(
    ("target", "accept"),
    [
        ("entry", "text/plain"),
        ("entry", "audio/mpeg3"),
        ("entry", "application/x-ndjson;q=0, audio/mpeg3"),
        ("rpc/page", "text/plain"),
        ("rpc/pages", "text/html"),
        ("rpc/plain_text", "text/xml"),
        ("rpc/plain_number", "application/octet-stream"),
        ("rpc/entries", "application/octet-stream"),
        ("entry", "application/vnd.pgrst.plan"),
    ],
)
async def test_unavailable_media_types_are_rejected(service: Service, target: str, accept: str) -> None:
    for method in ("GET", "HEAD"):
        response = await service.rest(method, target, headers={"accept": accept})
        assert response.status == 406
    response = await get(service, target, accept)
    assert (response.body["code"], response.headers["content-type"]) == (
        "PGRST107",
        "application/json; charset=utf-8",
    )
    assert response.body["message"].startswith("None of these media types are available: ")


async def test_other_accepted_media_types_are_used_instead(service: Service) -> None:
    response = await get(service, "shape", "application/vnd.pgrst.plan, text/plain, application/json;q=0.1")
    assert (response.status, response.body) == (200, [{"id": 1, "name": "x"}])


# ---------------------------------------------------------------- defined by the database


async def test_table_aggregate_produces_the_body(service: Service) -> None:
    made = await get(service, "entry?order=id.desc", "application/vnd.sum")
    assert (made.status, made.headers["content-type"]) == (200, "application/vnd.sum")
    assert made.content == b"\3\2\1"
    assert (await get(service, "entry?id=in.(1,3)&order=id", "application/vnd.sum")).content == b"\1\3"
    assert (await get(service, "rpc/entries?limit=2", "application/vnd.sum")).content == b"\1\2"
    assert (await get(service, "entry?id=eq.9", "application/vnd.sum")).content == b""
    made = await get(service, "entry", "application/vnd.sum")
    assert made.headers["content-range"] == "0-2/*"


async def test_table_aggregate_requires_whole_rows(service: Service) -> None:
    for target in (
        "entry?select=id",
        "entry?select=id,name",
        "entry?select=name,id",
        "shape",
        "rpc/entries?select=id",
    ):
        assert (await get(service, target, "application/vnd.sum")).status == 406


async def test_generic_aggregate_receives_the_selected_columns(service: Service) -> None:
    accept = "text/tab-separated-values"
    assert summary(await get(service, "entry?id=lt.3&id=neq.2", accept)) == (200, accept, "1\ta\n")
    assert (await get(service, "entry?select=name,number:id&id=eq.1", accept)).text == "a\t1\n"
    assert (await get(service, "rpc/entries?select=name&id=eq.1", accept)).text == "a\n"


async def test_generic_aggregate_receives_the_requested_names(service: Service) -> None:
    """Aliases that PostgreSQL would truncate are rejected."""
    accept = "application/vnd.any+json"
    made = await get(service, r'entry?select="Its \"name\"":name,the_id:id::text&id=eq.1', accept)
    assert made.body == {"last": {'Its "name"': "a", "the_id": "1"}}
    refused = await get(service, f"entry?select={'n' * 64}:name", accept)
    assert (refused.status, refused.body["code"]) == (400, "PGRST127")


async def test_generic_aggregate_accepts_scalar_values(service: Service) -> None:
    accept = "application/vnd.any+json"
    assert (await get(service, "rpc/plain_number", accept)).body == {"last": 42}
    assert (await get(service, "rpc/pages", accept)).body == {"last": "b"}


async def test_changed_rows_are_returned_in_database_media_types(service: Service) -> None:
    """The media type is checked even if no rows are returned."""
    shown = {"accept": "application/vnd.sum", "prefer": "return=representation"}
    response = await service.rest("POST", "entry", [{"id": 200}, {"id": 201}], headers=shown)
    assert (response.status, response.content) == (201, bytes([200, 201]))
    assert response.headers["content-type"] == "application/vnd.sum"
    response = await service.rest("DELETE", "entry?id=gte.200", headers={**shown, "accept": "text/plain"})
    assert response.status == 406
    response = await service.rest("DELETE", "entry?id=gte.200", headers={"accept": "application/vnd.sum"})
    assert (response.status, response.content) == (204, b"")


async def test_table_aggregate_takes_precedence_over_a_generic_one(service: Service) -> None:
    accept = "application/vnd.any+json"
    assert (await get(service, "shape", accept)).body == {"own": "shape"}
    assert (await get(service, "entry?id=eq.1", accept)).body == {"last": {"id": 1, "name": "a"}}


async def test_built_in_media_types_can_be_overridden(service: Service) -> None:
    """The override applies to one table, and never to PostgREST's own media types."""
    overridden = await get(service, "own_json", "application/json")
    assert summary(overridden) == (200, "application/json; charset=utf-8", '{"overridden": "true"}')
    assert (await get(service, "own_json?id=eq.1", OBJECT)).body == {"id": 1}
    assert (await get(service, "shape", "application/json")).body == [{"id": 1, "name": "x"}]
    made = await get(service, "entry?id=eq.1", "text/csv")
    assert summary(made) == (200, "text/csv; charset=utf-8", "\ufeff1;a\n")
    assert made.headers["content-disposition"] == 'attachment; filename="lines.csv"'


async def test_wildcard_aggregate_can_set_the_content_type(service: Service) -> None:
    for accept in ("*/*", "unknown/unknown", "application/json"):
        assert summary(await get(service, "anything", accept)) == (200, "application/octet-stream", "any:123")
    assert summary(await get(service, "anything?id=eq.2", "magic/number")) == (200, "magic/number", "any:2")


async def test_media_type_requires_the_execute_privilege(service: Service) -> None:
    accept = "application/vnd.secret"
    assert (await get(service, "shape", accept)).status == 406
    assert summary(await get(service, "shape", accept, role="authenticated")) == (200, accept, "s")


async def test_head_negotiates_the_media_type_without_a_body(service: Service) -> None:
    response = await service.rest("HEAD", "entry", headers={"accept": "application/vnd.sum"})
    assert (response.status, response.headers["content-type"], response.text) == (
        200,
        "application/vnd.sum",
        "",
    )
    response = await service.rest("HEAD", "rpc/image?name=a.png", headers={"accept": "image/png"})
    assert (response.status, response.headers["content-type"], response.text) == (200, "image/png", "")
