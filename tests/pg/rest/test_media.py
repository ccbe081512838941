"""The forms in which answers come over HTTP, built in and made by the database."""

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
    """Return the answer to a read that accepts something."""
    return await service.rest("GET", target, headers={"accept": accept}, **named)


def given(answer: Answer) -> tuple[int, str, str]:
    """Return status, content type and text of an answer."""
    return answer.status, answer.headers["content-type"], answer.text


# ---------------------------------------------------------------- built in


async def test_csv_has_a_header_and_quotes_what_needs_it(service: Service) -> None:
    for target in ("shape", "shape?select=id,name"):
        assert given(await get(service, target, "text/csv")) == (
            200,
            "text/csv; charset=utf-8",
            "id,name\n1,x",
        )
    answer = await get(service, "rpc/entries?select=n:name,id", "text/csv")
    assert list(csv.reader(io.StringIO(answer.text))) == [["n", "id"], ["a", "1"], ["", "2"], ['c,"d"', "3"]]
    assert (await get(service, "rpc/plain_number", "text/csv")).text == "pgrst_scalar\n42"


async def test_a_single_object_stands_alone(service: Service) -> None:
    answer = await get(service, "entry?id=eq.2", OBJECT)
    assert (answer.status, answer.body) == (200, {"id": 2, "name": None})
    assert answer.headers["content-type"] == f"{OBJECT}; charset=utf-8"
    answer = await get(service, "rpc/entries?id=eq.2", f"{OBJECT};nulls=stripped")
    assert (answer.status, answer.body) == (200, {"id": 2})
    assert answer.headers["content-type"] == f"{OBJECT};nulls=stripped; charset=utf-8"
    answer = await get(service, "rpc/entries?id=gt.1", OBJECT)
    assert (answer.status, answer.body["details"]) == (406, "The result contains 2 rows")
    assert given(await get(service, "rpc/plain_number", OBJECT))[2] == "42"


async def test_null_members_are_left_out_of_arrays(service: Service) -> None:
    for target in ("entry?order=id&limit=2", "rpc/entries?limit=2"):
        answer = await get(service, target, f"{ARRAY};nulls=stripped")
        assert answer.body == [{"id": 1, "name": "a"}, {"id": 2}]
        assert answer.headers["content-type"] == f"{ARRAY};nulls=stripped; charset=utf-8"


async def test_null_members_are_left_out_of_values(service: Service) -> None:
    """Of one that is JSON; other values stay what they are."""
    for accept in (f"{OBJECT};nulls=stripped", f"{ARRAY};nulls=stripped"):
        assert (await get(service, "rpc/nested", accept)).body == {"b": 1}
        assert (await get(service, "rpc/plain_number", accept)).body == 42
    assert (await get(service, "rpc/pages", f"{ARRAY};nulls=stripped")).body == ["a", "b"]
    assert (await get(service, "rpc/nested", "application/json")).body == {"a": None, "b": 1}


@pytest.mark.own_sql
async def test_rows_become_features_of_geojson(service: Service) -> None:
    """As the function of PostGIS makes them, of tables and of functions."""
    for target in ("entry?id=eq.1", "rpc/entries?id=eq.1"):
        answer = await get(service, target, "application/geo+json")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/geo+json; charset=utf-8")
        feature = {"type": "Feature", "properties": {"id": 1, "name": "a"}}
        assert answer.body == {"type": "FeatureCollection", "features": [feature]}


async def test_lines_of_json_are_streamed(service: Service) -> None:
    for target in ("entry?order=id&id=lt.3", "rpc/entries?id=lt.3"):
        answer = await get(service, target, "application/x-ndjson")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
        assert [json.loads(line) for line in answer.text.splitlines()] == [
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
async def test_a_functions_value_is_returned_as_it_is(
    service: Service, server: Server, target: str, accept: str, content_type: str, content: bytes
) -> None:
    """Texts, XML and bytes on request, and a domain's values as the media type that it is named like."""
    if target == "plain_xml":
        server.require("libxml")
    answer = await get(service, f"rpc/{target}", accept)
    assert (answer.status, answer.headers["content-type"], answer.content) == (200, content_type, content)


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
    """Serve a database whose XML declares an encoding that it has no longer."""
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
async def test_xml_declares_no_encoding_that_the_body_does_not_have(
    xml_service: Service, target: str, accept: str, text: str
) -> None:
    """A body is UTF-8, whatever the document was when it was stored; a function's and an aggregate's."""
    answer = await get(xml_service, target, accept)
    assert (answer.status, answer.content) == (200, text.encode())


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
async def test_what_is_not_there_is_refused(service: Service, target: str, accept: str) -> None:
    """406 with PGRST107, whatever the method."""
    for method in ("GET", "HEAD"):
        answer = await service.rest(method, target, headers={"accept": accept})
        assert answer.status == 406
    answer = await get(service, target, accept)
    assert (answer.body["code"], answer.headers["content-type"]) == (
        "PGRST107",
        "application/json; charset=utf-8",
    )
    assert answer.body["message"].startswith("None of these media types are available: ")


async def test_what_else_is_accepted_is_given_instead(service: Service) -> None:
    answer = await get(service, "shape", "application/vnd.pgrst.plan, text/plain, application/json;q=0.1")
    assert (answer.status, answer.body) == (200, [{"id": 1, "name": "x"}])


# ---------------------------------------------------------------- made by the database


async def test_an_aggregate_of_a_table_makes_its_rows(service: Service) -> None:
    made = await get(service, "entry?order=id.desc", "application/vnd.sum")
    assert (made.status, made.headers["content-type"]) == (200, "application/vnd.sum")
    assert made.content == b"\3\2\1"
    assert (await get(service, "entry?id=in.(1,3)&order=id", "application/vnd.sum")).content == b"\1\3"
    assert (await get(service, "rpc/entries?limit=2", "application/vnd.sum")).content == b"\1\2"
    assert (await get(service, "entry?id=eq.9", "application/vnd.sum")).content == b""
    made = await get(service, "entry", "application/vnd.sum")
    assert made.headers["content-range"] == "0-2/*"


async def test_an_aggregate_of_a_table_takes_only_whole_rows(service: Service) -> None:
    """Any ``select`` but all columns is 406, and so are other tables."""
    for target in (
        "entry?select=id",
        "entry?select=id,name",
        "entry?select=name,id",
        "shape",
        "rpc/entries?select=id",
    ):
        assert (await get(service, target, "application/vnd.sum")).status == 406


async def test_an_aggregate_of_any_rows_makes_what_was_selected(service: Service) -> None:
    accept = "text/tab-separated-values"
    assert given(await get(service, "entry?id=lt.3&id=neq.2", accept)) == (200, accept, "1\ta\n")
    assert (await get(service, "entry?select=name,number:id&id=eq.1", accept)).text == "a\t1\n"
    assert (await get(service, "rpc/entries?select=name&id=eq.1", accept)).text == "a\n"


async def test_an_aggregate_of_any_rows_finds_the_names_that_were_asked_for(service: Service) -> None:
    """Those of the client too, but for such as PostgreSQL would not keep."""
    accept = "application/vnd.any+json"
    made = await get(service, r'entry?select="Its \"name\"":name,the_id:id::text&id=eq.1', accept)
    assert made.body == {"last": {'Its "name"': "a", "the_id": "1"}}
    refused = await get(service, f"entry?select={'n' * 64}:name", accept)
    assert (refused.status, refused.body["code"]) == (400, "PGRST127")


async def test_an_aggregate_of_any_rows_takes_values_too(service: Service) -> None:
    accept = "application/vnd.any+json"
    assert (await get(service, "rpc/plain_number", accept)).body == {"last": 42}
    assert (await get(service, "rpc/pages", accept)).body == {"last": "b"}


async def test_a_change_shows_its_rows_in_the_databases_own_forms(service: Service) -> None:
    """When it shows them; else there is no content, but the form must still be there."""
    shown = {"accept": "application/vnd.sum", "prefer": "return=representation"}
    answer = await service.rest("POST", "entry", [{"id": 200}, {"id": 201}], headers=shown)
    assert (answer.status, answer.content) == (201, bytes([200, 201]))
    assert answer.headers["content-type"] == "application/vnd.sum"
    answer = await service.rest("DELETE", "entry?id=gte.200", headers={**shown, "accept": "text/plain"})
    assert answer.status == 406
    answer = await service.rest("DELETE", "entry?id=gte.200", headers={"accept": "application/vnd.sum"})
    assert (answer.status, answer.content) == (204, b"")


async def test_the_aggregate_of_the_table_goes_before_that_of_any_rows(service: Service) -> None:
    accept = "application/vnd.any+json"
    assert (await get(service, "shape", accept)).body == {"own": "shape"}
    assert (await get(service, "entry?id=eq.1", accept)).body == {"last": {"id": 1, "name": "a"}}


async def test_what_is_built_in_can_be_overridden(service: Service) -> None:
    """For a table; not PostgREST's own media types, and not for other tables."""
    overridden = await get(service, "own_json", "application/json")
    assert given(overridden) == (200, "application/json; charset=utf-8", '{"overridden": "true"}')
    assert (await get(service, "own_json?id=eq.1", OBJECT)).body == {"id": 1}
    assert (await get(service, "shape", "application/json")).body == [{"id": 1, "name": "x"}]
    made = await get(service, "entry?id=eq.1", "text/csv")
    assert given(made) == (200, "text/csv; charset=utf-8", "\ufeff1;a\n")
    assert made.headers["content-disposition"] == 'attachment; filename="lines.csv"'


async def test_an_aggregate_for_anything_may_choose_the_content_type(service: Service) -> None:
    for accept in ("*/*", "unknown/unknown", "application/json"):
        assert given(await get(service, "anything", accept)) == (200, "application/octet-stream", "any:123")
    assert given(await get(service, "anything?id=eq.2", "magic/number")) == (200, "magic/number", "any:2")


async def test_only_who_may_call_the_aggregate_has_its_media_type(service: Service) -> None:
    accept = "application/vnd.secret"
    assert (await get(service, "shape", accept)).status == 406
    assert given(await get(service, "shape", accept, role="authenticated")) == (200, accept, "s")


async def test_head_negotiates_but_makes_nothing(service: Service) -> None:
    """The content type is that of GET."""
    answer = await service.rest("HEAD", "entry", headers={"accept": "application/vnd.sum"})
    assert (answer.status, answer.headers["content-type"], answer.text) == (200, "application/vnd.sum", "")
    answer = await service.rest("HEAD", "rpc/image?name=a.png", headers={"accept": "image/png"})
    assert (answer.status, answer.headers["content-type"], answer.text) == (200, "image/png", "")
