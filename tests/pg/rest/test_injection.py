"""Hostile text in any part of a REST request never becomes part of a statement."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from dataapi.database.message import Statement
from hypothesis import given
from hypothesis import strategies as st
from support.service import Service

SCHEMA = r"""
create table "odd "" ; ' $1 %s $$ --" (
    "key "" '' $1 %" text primary key,
    "val %s (') \ " text,
    "list "" x" text[],
    parent text constraint "fk "" '" references "odd "" ; ' $1 %s $$ --"
);
create function "comp "" ' $1 %s"("odd "" ; ' $1 %s $$ --") returns text language sql stable as
    'select $1."key "" '''' $1 %"';
create function "call "" ; ' $1"("arg "" '' %s" text, "other $1" int default 1) returns text
    language sql stable as $$ select "arg "" '' %s" || "other $1" $$;
insert into "odd "" ; ' $1 %s $$ --" values
    (E'k" '' $1 %s \\ ;--', E'v" '' $1 %s \\ $$', array['a" b', E'c\\d', '%'], E'k" '' $1 %s \\ ;--'),
    ('plain', 'x', '{}', 'plain');

create table note (
    id int primary key, text text, list text[], at timestamptz, n numeric, j jsonb, words tsvector,
    up int references note
);
create function echo(text text) returns setof note
    language sql stable as $$ select * from note where note.text = echo.text $$;
create function each(variadic more text[]) returns text[] language sql stable as 'select more';
create function whole(json) returns json language sql stable as 'select $1';
create domain "application/vnd.test" as text;
create function gather(text, anyelement) returns "application/vnd.test" language sql immutable as
    $$ select coalesce($1, '') || to_json($2)::text $$;
create aggregate anything(anyelement) (sfunc = gather, stype = "application/vnd.test");
insert into note (id, text) values (1, 'kept');
grant all on all tables in schema public to anon;
"""
PROJECT = {"db_aggregates_enabled": True}

TABLE = "odd \" ; ' $1 %s $$ --"
KEY = "key \" '' $1 %"
VALUE = "val %s (') \\ "
LIST = 'list " x'
HOSTILE_KEY = "k\" ' $1 %s \\ ;--"


def named(name: str) -> str:
    """Return a quoted name for use in a URL parameter."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return quote(f'"{escaped}"', safe="")


async def test_names_with_quotes_work(either: Service) -> None:
    """The names of tables, columns, keys and functions contain quotes, SQL and placeholders."""
    table, key, value = quote(TABLE, safe=""), named(KEY), named(VALUE)
    computed = named("comp \" ' $1 %s")
    select = f"{key},{value},a:{named(LIST)},c:{computed},up:parent({key})"
    query = f"select={select}&{value}=eq.{quote(VALUE_TEXT, safe='')}&order={value}.desc,{computed}"
    response = await either.rest("GET", f"{table}?{query}")
    assert response.status == 200, response.text
    assert response.body == [
        {
            KEY: HOSTILE_KEY,
            VALUE: VALUE_TEXT,
            "a": ['a" b', "c\\d", "%"],
            "c": HOSTILE_KEY,
            "up": {KEY: HOSTILE_KEY},
        }
    ]
    body = {KEY: "plain", VALUE: "$1 %s", LIST: ["$$", "'"]}
    headers = {"prefer": "resolution=merge-duplicates,return=representation"}
    target = f"{table}?on_conflict={key}&columns={key},{value},{named(LIST)}&select={value},{named(LIST)}"
    response = await either.rest("POST", target, body, headers=headers)
    assert response.status == 200, response.text
    assert response.body == [{VALUE: "$1 %s", LIST: ["$$", "'"]}]
    response = await either.rest(
        "PATCH", f"{table}?{key}=eq.plain", {VALUE: "x"}, headers={"prefer": "return=representation"}
    )
    assert response.body[0][VALUE] == "x"


VALUE_TEXT = "v\" ' $1 %s \\ $$"


async def test_function_arguments_with_quotes_work(either: Service) -> None:
    function, argument = quote("call \" ; ' $1", safe=""), "arg \" '' %s"
    response = await either.rest("GET", f"rpc/{function}?{quote(argument, safe='')}=a'%25s")
    assert (response.status, response.body) == (200, "a'%s1")
    response = await either.rest("POST", f"rpc/{function}", {argument: "$1\\", "other $1": 2})
    assert (response.status, response.body) == (200, "$1\\2")


@pytest.mark.parametrize(
    "alias", ['"', '""', "a b", "$1", "%s", "%%", "';--", "\\", "$$", "é😀", "t~1", "~1", "a" * 64, ""]
)
async def test_aliases_are_quoted_for_aggregates(either: Service, alias: str) -> None:
    accept = {"accept": "application/vnd.test"}
    response = await either.rest("GET", f"note?select={named(alias)}:text&id=eq.1", headers=accept)
    fits = 0 < len(alias.encode()) < 64 and alias != "t~1"
    assert response.status == (200 if fits else 400), response.text
    if fits:
        assert json.loads(response.text) == {alias: "kept"}


# ---------------------------------------------------------------- hostile text

RESERVED = "\"';$\\%s1-_*/(){}[],:.!&=+? \n\té😀"
WHOLE = [
    "'; drop table note; --",
    "$1",
    "%s %(x)s %%",
    "\\'; select pg_sleep(9); --",
    '{"a",NULL}',
    "NULL",
    "eq.1",
    'in.(1,"',
    "not.is.null",
    "*",
    "...up(*)",
    "up(*)",
    "id->>a::text",
    "id.sum()::int",
    "and(id.eq.1,or(",
    "count=exact",
    "\x00",
    "\ud800",
    "\x7f\x80",
    "9" * 400,
    "-1",
    "1e400",
    "(" * 100,
    "a" * 300,
]
hostile = st.one_of(
    st.text(max_size=20), st.text(RESERVED, max_size=20), st.sampled_from(WHOLE), st.binary(max_size=8)
)


def escaped(text: str | bytes) -> bytes:
    """Percent-encode text for a URL, even if it is not valid UTF-8."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return quote(data, safe="").encode()


def in_header(text: str | bytes) -> bytes:
    """Return the bytes of a text, without newlines and NUL."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return data.translate(None, b"\r\n\0")


def get(query: bytes, path: bytes = b"note") -> bytes:
    return b"GET /rest/v1/" + path + b"?" + query + b" HTTP/1.1\r\n\r\n"


def send(method: bytes, target: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = [method + b" /rest/v1/" + target + b" HTTP/1.1", *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def as_json(value: Any) -> bytes:
    """Return JSON in which lone surrogates are escaped and bytes are decoded as Latin-1."""
    return json.dumps(value, default=lambda data: data.decode("latin-1")).encode()


JSON, CSV = b"Content-Type: application/json", b"Content-Type: text/csv"
FORM = b"Content-Type: application/x-www-form-urlencoded"
BATCH = b"Content-Type: application/vnd.dataapi.batch+json"
POSITIONS: dict[str, Any] = {
    "select": lambda t: get(b"select=" + escaped(t)),
    "alias": lambda t: get(b"select=" + escaped(t) + b":id,text"),
    "cast": lambda t: get(b"select=id::" + escaped(t)),
    "path": lambda t: get(b"select=j->" + escaped(t) + b"->>1&order=j->>" + escaped(t)),
    "embed": lambda t: get(b"select=id," + escaped(t) + b"!up(id)"),
    "hint": lambda t: get(b"select=id,note!" + escaped(t) + b"(id)"),
    "within": lambda t: get(b"select=up(" + escaped(t) + b")&up." + escaped(t) + b"=eq.1"),
    "filter": lambda t: get(b"id=" + escaped(t)),
    "name": lambda t: get(escaped(t) + b"=eq.1"),
    "value": lambda t: get(b"text=eq." + escaped(t) + b"&at=gt." + escaped(t)),
    "list": lambda t: get(b"text=in.(" + escaped(t) + b")"),
    "quantifier": lambda t: get(b"text=like(" + escaped(t) + b").a&text=eq(any)." + escaped(t)),
    "array": lambda t: get(b"list=cs." + escaped(t)),
    "search": lambda t: get(b"words=fts." + escaped(t) + b"&text=wfts(english)." + escaped(t)),
    "language": lambda t: get(b"words=fts(" + escaped(t) + b").a"),
    "pattern": lambda t: get(b"text=match." + escaped(t)),
    "logic": lambda t: get(b"or=(id.eq.1," + escaped(t) + b")"),
    "leaf": lambda t: get(b"or=(" + escaped(t) + b".eq.1,text.eq." + escaped(t) + b")"),
    "order": lambda t: get(b"order=" + escaped(t)),
    "limit": lambda t: get(b"limit=" + escaped(t) + b"&offset=" + escaped(t)),
    "table": lambda t: get(b"", escaped(t)),
    "function": lambda t: get(b"a=1", b"rpc/" + escaped(t)),
    "argument": lambda t: get(escaped(t) + b"=1", b"rpc/echo"),
    "argument's value": lambda t: get(b"text=" + escaped(t), b"rpc/echo"),
    "variadic": lambda t: get(b"more=" + escaped(t) + b"&more=b", b"rpc/each"),
    "raw query": lambda t: get(in_header(t).translate(None, b" \t")),
    "raw path": lambda t: get(b"", in_header(t).translate(None, b" \t?#")),
    "accept": lambda t: b"GET /rest/v1/note HTTP/1.1\r\nAccept: " + in_header(t) + b"\r\n\r\n",
    "profile": lambda t: b"GET /rest/v1/note HTTP/1.1\r\nAccept-Profile: " + in_header(t) + b"\r\n\r\n",
    "prefer": lambda t: b"GET /rest/v1/note HTTP/1.1\r\nPrefer: timezone=" + in_header(t) + b"\r\n\r\n",
    "range": lambda t: b"GET /rest/v1/note HTTP/1.1\r\nRange: " + in_header(t) + b"\r\n\r\n",
    "request id": lambda t: b"GET /rest/v1/note HTTP/1.1\r\nX-Request-Id: " + in_header(t) + b"\r\n\r\n",
    "cookie": lambda t: b"GET /rest/v1/note HTTP/1.1\r\nCookie: a=" + in_header(t) + b"\r\n\r\n",
    "openapi": lambda t: get(b"openapi=" + escaped(t), b""),
    "member": lambda t: send(b"POST", b"note", as_json({**_key(t), "id": 1}), JSON),
    "member's value": lambda t: send(b"POST", b"note", as_json([{"id": 1, "text": t, "list": [t]}]), JSON),
    "not even JSON": lambda t: send(b"POST", b"note", in_header(t), JSON),
    "header of CSV": lambda t: send(b"POST", b"note", in_header(t) + b"\n1", CSV),
    "line of CSV": lambda t: send(b"POST", b"note", b"id,text\n1," + in_header(t), CSV),
    "field of a form": lambda t: send(b"POST", b"note", b"id=1&text=" + escaped(t), FORM),
    "form": lambda t: send(b"POST", b"note", escaped(t) + b"=1", FORM),
    "content type": lambda t: send(b"POST", b"note", b"{}", b"Content-Type: " + in_header(t)),
    "columns": lambda t: send(b"POST", b"note?columns=" + escaped(t), b'{"id":1}', JSON),
    "conflict": lambda t: send(
        b"POST", b"note?on_conflict=" + escaped(t), b'{"id":1}', JSON, b"Prefer: resolution=ignore-duplicates"
    ),
    "key": lambda t: send(b"PUT", b"note?id=eq." + escaped(t), as_json({"id": t}), JSON),
    "update": lambda t: send(b"PATCH", b"note?text=eq." + escaped(t) + b"&id=eq.7", b'{"n":1}', JSON),
    "delete": lambda t: send(b"DELETE", b"note?text=eq." + escaped(t) + b"&id=eq.7", b""),
    "call": lambda t: send(b"POST", b"rpc/echo", as_json({"text": t}), JSON),
    "call's list": lambda t: send(b"POST", b"rpc/each", as_json({"more": [t]}), JSON),
    "call's member": lambda t: send(b"POST", b"rpc/echo", as_json(_key(t)), JSON),
    "whole body": lambda t: send(b"POST", b"rpc/whole", in_header(t), JSON),
    "batch": lambda t: send(
        b"POST", b"", as_json({"requests": [{"method": "GET", "path": "/" + _text(t)}]}), BATCH
    ),
    "batched body": lambda t: send(
        b"POST",
        b"",
        as_json({"requests": [{"method": "POST", "path": "/rpc/echo", "body": {"text": t}}]}),
        BATCH,
    ),
}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _key(value: str | bytes) -> dict[str, int]:
    return {_text(value): 1}


@given(position=st.sampled_from(list(POSITIONS)), text=hostile)
async def test_hostile_text_is_treated_as_data(service: Service, position: str, text: str | bytes) -> None:
    response = await service.raw(POSITIONS[position](text))
    assert 200 <= response.status < 500, (position, response.text)
    if response.status >= 400:
        error = response.body
        assert error.get("code") not in ("XX000", "PGRSTX00"), response.text
        assert error.get("code") != "42601" or "in tsquery" in error["message"], response.text
    assert service.database.execute("select id, text, n from note where id = 1") == [(1, "kept", None)]
    service.database.execute("delete from note where id <> 1")


# ---------------------------------------------------------------- no request text in statements

WORD = "zzq"
"""Marker of request text. No catalog and no generated SQL contains it."""
marked = st.text("abc\"'\\$;% ", max_size=5).map(lambda text: WORD + text + "x")
plain = st.integers(0, 99).map(lambda number: f"{WORD}{number}")


@st.composite
def reads(draw: st.DrawFn) -> tuple[str, str]:
    """Return the path and query of a read that contains the marker in aliases, names and values."""

    def value() -> str:
        return quote(draw(marked), safe="")

    def listed() -> str:
        return quote(json.dumps(draw(marked)), safe="")

    def alias() -> str:
        return f"{draw(plain)}:" if draw(st.booleans()) else ""

    def leaf() -> str:
        operator = draw(st.sampled_from(["eq", "neq", "gt", "like", "ilike", "isdistinct"]))
        column = draw(st.sampled_from(["text", f"j->>{draw(plain)}", f"j->a->>{draw(plain)}"]))
        return f"{column}.{'not.' if draw(st.booleans()) else ''}{operator}.{listed()}"

    def logic() -> str:
        return f"({leaf()},{draw(st.sampled_from(['and', 'not.or']))}({leaf()},{leaf()}))"

    items = [f"{alias()}id", f"{alias()}text::text", f"{alias()}j->{draw(plain)}->>{draw(plain)}"]
    items += [f"{alias()}up(id,{alias()}text)", f"{draw(plain)}i:note!up!inner(id)"]
    column = draw(st.sampled_from(["text", f"j->>{draw(plain)}"]))
    parameters = [
        f"select={','.join(items)}",
        f"{column}={draw(st.sampled_from(['eq', 'neq', 'like', 'gt']))}.{value()}",
        f"text=in.({listed()},{listed()})",
        f"words=fts(english).{draw(plain)}",
        f"or={logic()}",
        f"up.text=eq.{value()}",
        f"order=j->>{draw(plain)}.desc,id",
    ]
    chosen = draw(st.lists(st.sampled_from(parameters), unique=True, min_size=1))
    return draw(st.sampled_from(["note", f"rpc/echo?text={value()}"])), "&".join([parameters[0], *chosen])


@given(
    reads(),
    st.sampled_from(["application/json", "text/csv", "application/vnd.pgrst.array+json;nulls=stripped"]),
)
async def test_reads_bind_all_request_text(service: Service, read: tuple[str, str], accept: str) -> None:
    path, query = read
    target = f"{path}{'&' if '?' in path else '?'}{query}"
    headers = {"accept": accept, f"x-{WORD}": WORD, "cookie": f"{WORD}={WORD}", "prefer": "count=exact"}
    response = await service.rest("GET", target, headers=headers)
    assert response.status in (200, 206), response.text
    check_unmarked(response.messages)


def check_unmarked(messages: Any) -> None:
    """Fail if request text occurs in a statement, a parameter type or a setting name."""
    assert messages
    for message in messages:
        assert not any(WORD in name for name, _ in message.settings)
        for bound in message.statements:
            assert isinstance(bound.statement, Statement)
            assert WORD not in bound.statement.text
            assert not any(WORD in kind for kind in bound.statement.types)


@given(
    text=marked,
    form=st.sampled_from([JSON, CSV, FORM]),
    prefer=st.sampled_from(["", "resolution=merge-duplicates,", "missing=default,", "tx=rollback,"]),
)
async def test_changes_bind_all_request_text(service: Service, text: str, form: bytes, prefer: str) -> None:
    bodies = {
        JSON: as_json({"id": 5, "text": text}),
        CSV: b'id,text\n5,"' + text.replace('"', '""').encode() + b'"',
        FORM: b"id=5&text=" + escaped(text),
    }
    headers = {
        "content-type": form.decode().removeprefix("Content-Type: "),
        "prefer": f"{prefer}return=representation",
    }
    for method, target in (
        ("POST", f"note?select={WORD}:id,text"),
        ("PATCH", f"note?select={WORD}:id,text&text=eq.{quote(text, safe='')}"),
        ("PUT", f"note?select={WORD}:id,text&id=eq.5"),
        ("DELETE", f"note?select={WORD}:id,text&text=eq.{quote(text, safe='')}"),
    ):
        response = await service.rest(method, target, bodies[form], headers=headers)
        assert response.status in (200, 201), response.text
        assert response.body == [{WORD: 5, "text": text}]
        check_unmarked(response.messages)
    assert service.database.execute("select count(*) from note") == [(1,)]
