"""GraphQL over WebSocket: operations, credentials, limits and close codes."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.messages import Identity
from dataapi.live import subscribers
from dataapi.web import websocket
from support.live import LiveService, serving_live, signed
from support.memory_http import KEY
from support.service import run
from support.websocket import SUBPROTOCOL, SocketClient, connect
from twisted.internet.task import deferLater
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from dataapi.telemetry.requests import CompletedRequest
    from support.postgres import Database, Server

    Connect = Callable[..., Awaitable[SocketClient]]

SCHEMA = """
create table item (id int primary key, name text not null);
create table pause (seconds float8);
create view paused as select seconds, pg_sleep(seconds) is null as over from pause;
comment on view paused is '@graphql({"primary_key_columns": ["seconds"]})';
create function failing() returns int language plpgsql stable as $$ begin raise 'broken'; end $$;
create function slow(seconds float8) returns int language sql as $$
    insert into item select 9, pg_sleep(seconds)::text || 'slow'; select 9 $$;
grant all on all tables in schema public to anon, authenticated;
"""
RESET = "truncate item; insert into item values (1, 'before')"
ITEM = "subscription { itemByPk(id: 1) { name } }"
NAMES = "{ itemCollection(orderBy: [{id: AscNullsLast}]) { edges { node { name } } } }"
LARGE = 9_000_000
"""Size of a result in bytes, larger than the socket buffers."""
ORIGIN = "https://app.example.org"


@pytest.fixture(scope="module")
def database(server: Server) -> Database:
    return server.create_database(SCHEMA)


@pytest.fixture
def live(database: Database, reactor: Any) -> Iterator[LiveService]:
    database.execute(RESET)
    limits = {"max_subscriptions": 6, "max_bodies": 100_000}
    origins = (ORIGIN, "https://other.example.org")
    with serving_live(
        reactor, database, limits, live_subscriptions_per_caller=5, server_cors_allowed_origins=origins
    ) as service:
        yield service


@pytest.fixture
def clients(live: LiveService, reactor: Any) -> Iterator[Connect]:
    """Yield a function that opens a WebSocket. Closing all WebSockets must free their resources."""
    opened: list[SocketClient] = []

    async def open_client(*headers: tuple[str, str], **options: Any) -> SocketClient:
        client = await connect(reactor, live.url, *headers, **options)
        opened.append(client)
        return client

    async def release() -> None:
        for client in opened:
            client.abort()
            await client.end()
        await live.until(lambda: not live.site.connections, "the end of the connections")
        await live.until(lambda: live.site.in_flight == 0, "the end of the operations")

    yield open_client
    run(release())
    assert (live.figures.subscribers, live.figures.connections, live.figures.unsent_bytes) == (0, 0, 0)
    assert live.site._feeds == 0
    assert live.site.bodies.free == live.settings.max_bodies


@pytest.fixture
def limited(database: Database, reactor: Any) -> Iterator[LiveService]:
    """Serve the schema with low limits on requests."""
    with serving_live(reactor, database, request_timeout=0.3, graphql_max_depth=2, max_body=1000) as service:
        yield service


@pytest.fixture
def disabled(database: Database, reactor: Any) -> Iterator[LiveService]:
    with serving_live(reactor, database, live_interval=None) as service:
        yield service


def item(name: str) -> Any:
    return {"data": {"itemByPk": {"name": name}}}


def result(identifier: str, payload: Any) -> Any:
    return {"id": identifier, "type": "next", "payload": payload}


def completion(identifier: str) -> Any:
    return {"id": identifier, "type": "complete"}


def errors(message: Any) -> list[str]:
    assert message["type"] == "error", message
    return [error["message"] for error in message["payload"]]


# ---------------------------------------------------------------- operations


async def test_subscription_sends_each_change_in_one_message(live: LiveService, clients: Connect) -> None:
    client = await (await clients()).initialise()
    assert client.response is not None
    assert client.response.headers["Sec-WebSocket-Protocol"] == SUBPROTOCOL
    assert "Sec-WebSocket-Extensions" not in client.response.headers
    client.subscribe("a", ITEM)
    assert await client.next() == result("a", item("before"))
    live.database.execute("update item set name = 'lost'; update item set name = 'after'")
    assert await client.next() == result("a", item("after"))
    client.close()
    assert await client.end() == (1000, "")


async def test_operations_share_a_connection(live: LiveService, clients: Connect) -> None:
    client = await (await clients()).initialise()
    for identifier in ("a", "b"):
        client.subscribe(
            identifier, "subscription($id: Int!) { itemByPk(id: $id) { name } }", variables={"id": 1}
        )
        assert await client.next() == result(identifier, item("before"))
    assert (live.figures.subscribers, live.figures.cohorts, live.figures.connections) == (2, 1, 1)
    client.send("complete", id="a")
    client.send("complete", id="a")
    client.send("complete", id="unknown")
    await live.until(lambda: live.figures.subscribers == 1, "the end of a subscription")
    live.database.execute("update item set name = 'after'")
    assert await client.next() == result("b", item("after"))
    client.subscribe("a", ITEM)
    assert await client.next() == result("a", item("after"))


async def test_queries_and_mutations_complete(clients: Connect) -> None:
    client = await (await clients()).initialise()
    insert = 'mutation { insertIntoitemCollection(objects: [{id: 2, name: "new"}]) { affectedCount } }'
    client.subscribe("m", insert)
    payload = {"data": {"insertIntoitemCollection": {"affectedCount": 1}}}
    assert await client.next() == result("m", payload)
    assert await client.next() == completion("m")
    client.subscribe("q", NAMES, operationName=None, extensions={"cost": True})
    answer = await client.next()
    names = [edge["node"]["name"] for edge in answer["payload"]["data"]["itemCollection"]["edges"]]
    assert (names, "cost" in answer["payload"]["extensions"]) == (["before", "new"], True)
    assert await client.next() == completion("q")


async def test_rejected_operations_send_errors(clients: Connect) -> None:
    client = await (await clients()).initialise()
    client.subscribe("a", "{ nothing }")
    assert errors(await client.next()) == ["Cannot query field 'nothing' on type 'Query'."]
    client.send("subscribe", id="a", payload={})
    assert "query is missing" in errors(await client.next())[0]
    client.send("subscribe", id="a", payload={"query": "{ itemByPk(id: 1) { name } } # \0"})
    assert "U+0000" in errors(await client.next())[0]
    client.subscribe("a", NAMES)
    assert (await client.next())["type"] == "next"


async def test_failed_operations_send_a_result(clients: Connect) -> None:
    """The result contains ``data`` and ``errors``, like a response over HTTP."""
    client = await (await clients()).initialise()
    for text in ("{ failing }", "subscription { failing }"):
        client.subscribe("a", text)
        payload = (await client.next())["payload"]
        assert (payload["data"], payload["errors"][0]["message"]) == (None, "broken")
        assert await client.next() == completion("a")


async def test_operations_have_the_limits_of_requests(limited: LiveService, reactor: Any) -> None:
    client = await (await connect(reactor, limited.url)).initialise()
    client.subscribe("deep", NAMES)
    assert "4 fields deep" in errors(await client.next())[0]
    client.subscribe("slow", "mutation { slow(seconds: 30) }")
    assert errors(await client.next()) == ["The request timed out after 0.3 seconds"]
    client.subscribe("large", f"{NAMES} #{'x' * 1000}")
    closed = await client.end()
    assert closed is not None
    assert closed[0] == 1009


async def test_completing_a_running_operation_cancels_it(live: LiveService, clients: Connect) -> None:
    client = await (await clients()).initialise()
    sleeping = "select count(*) from pg_stat_activity where state = 'active' and wait_event = 'PgSleep'"
    client.subscribe("a", "mutation { slow(seconds: 60) }")
    await live.until(lambda: live.database.execute(sleeping) == [(1,)], "the statement")
    client.send("complete", id="a")
    await live.until(lambda: live.database.execute(sleeping) == [(0,)], "the cancellation")
    client.subscribe("a", ITEM)
    assert await client.next() == result("a", item("before"))


async def test_each_operation_is_logged_as_a_request(live: LiveService, clients: Connect) -> None:
    seen: list[CompletedRequest] = []
    live.site._pipeline._observe = seen.append
    client = await (await clients(("X-Request-Id", "mine"))).initialise()
    client.subscribe("a", "query Names " + NAMES)
    await client.next()
    await client.next()
    client.subscribe("b", ITEM)
    await client.next()
    client.subscribe("c", "{ nothing }")
    await client.next()
    assert [(each.request.id, each.request.method, each.status) for each in seen] == [
        ("mine", "GET", 101),
        ("mine/1", "POST", 200),
        ("mine/2", "POST", 200),
        ("mine/3", "POST", 200),
    ]
    assert Identity("anon", "") in seen[1].facts
    assert KEY not in str([each.facts for each in seen])


# ---------------------------------------------------------------- credentials


@pytest.mark.parametrize(
    ("headers", "payload"),
    [
        ({"apikey": KEY, "Authorization": "Bearer TOKEN"}, None),
        ({}, {"apikey": KEY, "Authorization": "Bearer TOKEN"}),
        ({}, {"apiKey": KEY, "headers": {"Authorization": "Bearer TOKEN"}}),
        (
            {"apikey": "wrong", "Authorization": "Bearer wrong"},
            {"apikey": KEY, "authorization": "Bearer TOKEN"},
        ),
    ],
)
async def test_credentials_are_headers_or_members_of_the_payload(
    live: LiveService, clients: Connect, headers: dict[str, str], payload: Any
) -> None:
    text = json.dumps([headers, payload]).replace("TOKEN", signed(sub="ada"))
    headers, payload = json.loads(text)
    client = await clients(*headers.items())
    client.send("connection_init", payload=payload)
    assert await client.next() == {"type": "connection_ack"}
    assert live.part.apis is not None
    assert live.part.apis.live is not None
    assert live.part.apis.live._callers == {"authenticated ada": 1}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "No API key found in request"),
        ({"apikey": "wrong"}, "Invalid API key"),
        ({"apikey": KEY, "authorization": f"Bearer {signed(exp=1)}"}, "JWT expired"),
    ],
)
async def test_rejected_credentials_close_the_connection(clients: Connect, payload: Any, reason: str) -> None:
    client = await clients()
    client.send("connection_init", payload=payload)
    assert await client.end() == (4403, reason)


async def test_key_in_the_url_is_not_accepted(clients: Connect) -> None:
    client = await clients(target=f"/graphql/v1?apikey={KEY}")
    client.send("connection_init")
    assert await client.end() == (4403, "No API key found in request")


def advance(live: LiveService, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Advance the clock that token expiry is compared with."""
    now = time.time() + seconds
    assert live.part.apis is not None
    monkeypatch.setattr(live.part.apis.live, "_now", lambda: now)
    monkeypatch.setattr(live.part._authenticator, "_now", lambda: now)


def bearer(seconds: float, subject: str = "ada") -> str:
    return f"Bearer {signed(sub=subject, exp=time.time() + seconds)}"


async def test_expired_token_closes_its_connection(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await (await clients()).initialise(authorization=bearer(100))
    other = await (await clients()).initialise(authorization=bearer(10_000, "grace"))
    idle = await (await clients()).initialise(authorization=bearer(100))
    for each, identifier in ((client, "a"), (client, "b"), (other, "a")):
        each.subscribe(identifier, ITEM)
        assert await each.next() == result(identifier, item("before"))
    advance(live, monkeypatch, 200)
    assert await client.end() == (4403, "JWT expired")
    assert not client.received
    idle.subscribe("a", NAMES)
    assert await idle.end() == (4403, "JWT expired")
    live.database.execute("update item set name = 'after'")
    assert await other.next() == result("a", item("after"))


async def test_ping_renews_the_token(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions are run again with the new token, and continue after the old token has expired."""
    client = await (await clients()).initialise(authorization=bearer(100))
    for identifier in ("a", "b"):
        client.subscribe(identifier, ITEM)
        await client.next()
    client.send("ping", payload={"authorization": bearer(10_000)})
    assert await client.next() == {"type": "pong"}
    assert [await client.next(), await client.next()] == [result(name, item("before")) for name in "ab"]
    advance(live, monkeypatch, 200)
    client.subscribe("q", NAMES)
    assert (await client.next())["id"] == "q"
    assert await client.next() == completion("q")
    live.database.execute("update item set name = 'after'")
    received = [await client.next(), await client.next()]
    assert sorted(received, key=lambda each: str(each["id"])) == [
        result(name, item("after")) for name in "ab"
    ]
    assert live.figures.subscribers == 2


@pytest.mark.parametrize(
    ("token", "reason"),
    [(bearer(-100), "JWT expired"), (bearer(10_000, "grace"), "The token belongs to another caller")],
)
async def test_ping_with_an_unsuitable_token_closes_the_connection(
    clients: Connect, token: str, reason: str
) -> None:
    client = await (await clients()).initialise(authorization=bearer(10_000))
    client.subscribe("a", ITEM)
    await client.next()
    client.send("ping", payload={"headers": {"Authorization": token}})
    assert await client.next() == {"type": "pong"}
    assert await client.end() == (4403, reason)


async def test_removed_api_key_closes_the_connection(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await (await clients()).initialise()
    client.subscribe("a", ITEM)
    await client.next()
    monkeypatch.setattr("dataapi.live.queries._REAUTHENTICATE_AFTER", 0.0)
    monkeypatch.setattr(live.part._authenticator, "_opaque", [])
    assert await client.end() == (4403, "Invalid API key")


async def test_revoked_right_ends_the_subscription(live: LiveService, clients: Connect) -> None:
    client = await (await clients()).initialise()
    client.subscribe("a", ITEM)
    await client.next()
    live.database.execute("revoke select on item from anon")
    try:
        message = await client.next()
        assert message["payload"]["errors"][0]["extensions"]["code"] == "42501"
        assert await client.next() == completion("a")
    finally:
        live.database.execute("grant select on item to anon")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Origin", "https://evil.example")], 403),
        ([("Origin", "null")], 403),
        ([("Origin", ORIGIN)], 101),
        ([("Origin", "http://HOST")], 101),
        ([], 101),
    ],
)
async def test_origins_are_checked_before_the_upgrade(
    live: LiveService, clients: Connect, headers: list[tuple[str, str]], status: int
) -> None:
    host = live.url.removeprefix("http://")
    client = await clients(*((name, value.replace("HOST", host)) for name, value in headers))
    assert client.status == status
    if status == 403:
        assert client.response is not None
        assert b'"ORIGIN_NOT_ALLOWED"' in bytes(client.response.body or b"")


# ---------------------------------------------------------------- protocol


async def test_pings_are_answered(clients: Connect) -> None:
    client = await clients()
    client.send("ping", payload={"secret": KEY})
    assert await client.next() == {"type": "pong"}
    client.send("pong")
    await client.initialise()


@pytest.mark.parametrize(
    ("texts", "code", "reason"),
    [
        (["{"], 4400, 'invalid message (expected text, a JSON object with the member "type")'),
        (['{"type":"start"}'], 4400,
         'invalid "type" (expected connection_init, ping, pong, subscribe or complete)'),
        (['{"type":"connection_init","payload":{"apikey":5}}'], 4400,
         "invalid payload.apikey (expected the value of a header)"),
        (['{"type":"subscribe","id":"1","payload":{"query":"{ a }"}}'], 4401, "Unauthorized"),
        (["INIT", "INIT"], 4429, "Too many initialisation requests"),
        (["INIT", "SUBSCRIBE", "SUBSCRIBE"], 4409, "Subscriber for 1 already exists"),
    ],
)  # fmt: skip
async def test_violations_close_the_connection(
    clients: Connect, texts: list[str], code: int, reason: str
) -> None:
    known = {
        "INIT": json.dumps({"type": "connection_init", "payload": {"apikey": KEY}}),
        "SUBSCRIBE": json.dumps({"type": "subscribe", "id": "1", "payload": {"query": ITEM}}),
    }
    client = await clients()
    for text in texts:
        client.send_text(known.get(text, text))
    assert await client.end() == (code, reason)


@pytest.mark.parametrize("subprotocol", [None, "graphql-ws"])
async def test_other_subprotocols_are_not_acceptable(clients: Connect, subprotocol: str | None) -> None:
    client = await clients(subprotocol=subprotocol)
    assert client.status == 101
    assert await client.end() == (4406, "expected graphql-transport-ws")


async def test_missing_initialisation_closes_the_connection(
    clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "INITIALISATION_TIMEOUT", 0.01)
    client = await clients()
    assert await client.end() == (4408, "Connection initialisation timeout")


async def test_internal_error_closes_the_connection(
    clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_data: bytes) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("dataapi.live.websocket_messages.parse", fail)
    client = await clients()
    client.send("ping")
    assert await client.end() == (4500, "Internal server error")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x02{}", 1002),  # not masked
        (b"\xc1\x80\0\0\0\0", 1002),  # compressed
        (b"\x80\x80\0\0\0\0", 1002),  # a continuation without a first frame
        (b"\x81\xff\0\0\0\0\0\x20\0\0\0\0\0\0", 1009),
        (b"\x82\x80\0\0\0\0", 4400),  # binary
    ],
)
async def test_malformed_frames_close_the_connection(clients: Connect, data: bytes, code: int) -> None:
    client = await clients()
    client.send_raw(data)
    closed = await client.end()
    assert closed is not None
    assert closed[0] == code


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("Sec-WebSocket-Version", "12", 400),
        ("Sec-WebSocket-Key", "short", 400),
        ("Upgrade", "h2c", 400),  # an ordinary request without a query
        ("Connection", "keep-alive", 400),
    ],
)
async def test_invalid_handshakes_are_rejected(clients: Connect, name: str, value: str, status: int) -> None:
    client = await clients((name, value), ("apikey", KEY))
    assert client.status == status


async def test_fragmented_messages_are_joined(clients: Connect) -> None:
    client = await clients()
    data = json.dumps({"type": "connection_init", "payload": {"apikey": KEY}}).encode()
    client.send_frame(Opcode.TEXT, data[:1], fin=False)
    for position in range(1, len(data)):
        client.send_frame(Opcode.CONT, data[position : position + 1], fin=False)
        client.send_frame(Opcode.PING, b"", fin=True)
    client.send_frame(Opcode.CONT, b"", fin=True)
    assert await client.next() == {"type": "connection_ack"}


async def test_messages_may_follow_the_handshake_immediately(clients: Connect) -> None:
    data = json.dumps({"type": "connection_init", "payload": {"apikey": KEY}}).encode()
    client = await clients(early=Frame(Opcode.TEXT, data).serialize(mask=True))
    assert await client.next() == {"type": "connection_ack"}


# ---------------------------------------------------------------- limits


async def test_subscriptions_per_caller_include_connections(live: LiveService, clients: Connect) -> None:
    client = await (await clients()).initialise()
    for number in range(4):
        client.subscribe(str(number), ITEM)
        await client.next()
    client.subscribe("more", ITEM)
    assert errors(await client.next()) == ["A caller may have at most 5 subscriptions"]
    refused = await clients()
    refused.send("connection_init", payload={"apikey": KEY})
    assert await refused.end() == (1013, "A caller may have at most 5 subscriptions")
    other = await (await clients()).initialise(authorization=bearer(100))
    other.subscribe("a", ITEM)
    await other.next()
    client.send("complete", id="0")
    await live.until(lambda: live.figures.subscribers == 4, "the end of a subscription")
    client.subscribe("more", ITEM)
    assert await client.next() == result("more", item("before"))


async def test_subscriptions_per_process_include_connections(clients: Connect) -> None:
    users = [await (await clients()).initialise(authorization=bearer(100, name)) for name in "ab"]
    for user in users:
        for number in range(2):
            user.subscribe(str(number), ITEM)
            await user.next()
    users[0].subscribe("more", ITEM)
    assert errors(await users[0].next()) == ["There are too many subscriptions"]
    refused = await clients()
    assert refused.status == 503
    users[0].subscribe("query", NAMES)
    assert (await users[0].next())["type"] == "next"


async def test_connections_without_initialisation_are_limited(clients: Connect) -> None:
    for _ in range(5):
        assert (await clients()).status == 101
    assert (await clients()).status == 429


async def test_few_operations_of_a_connection_run_at_a_time(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "MAX_RUNNING", 2)
    client = await (await clients()).initialise()
    sleeping = "select count(*) from pg_stat_activity where state = 'active' and wait_event = 'PgSleep'"
    for number in range(2):
        client.subscribe(str(number), "mutation { slow(seconds: 60) }")
    client.subscribe("later", ITEM)
    await live.until(lambda: live.database.execute(sleeping) == [(2,)], "two statements")
    assert not client.received
    live.database.execute("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'")
    while (message := await client.next())["id"] != "later":
        assert message["type"] in ("next", "complete")
    assert message == result("later", item("before"))


async def test_client_that_does_not_read_is_not_served(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a client reads nothing, its messages are not processed. Later, the client is disconnected."""
    live.database.execute("update item set name = repeat('x', %s)", (LARGE,))
    client = await (await clients()).initialise()
    client.transport.pauseProducing()
    seen: list[CompletedRequest] = []
    live.site._pipeline._observe = seen.append
    client.subscribe("1", NAMES)
    await live.until(lambda: seen, "the first result")
    for number in range(2, 40):
        client.subscribe(str(number), NAMES)
    [connection] = live.site.connections
    await live.until(lambda: connection._reading_paused, "backpressure")
    assert len(seen) == 1
    monkeypatch.setattr(websocket, "STALL_TIMEOUT", 0.0)
    session = connection.feed
    session._check()
    await live.until(lambda: not live.site.connections, "the disconnection")
    assert len(seen) == 1


async def test_pings_of_a_client_that_does_not_read_are_not_read(live: LiveService, clients: Connect) -> None:
    """Otherwise, the pongs would use more and more memory."""
    live.database.execute("update item set name = repeat('x', %s)", (LARGE,))
    client = await (await clients()).initialise()
    [connection] = live.site.connections
    client.transport.pauseProducing()
    client.subscribe("1", NAMES)
    await live.until(lambda: connection.sender.waits, "the result")
    client.send_raw(Frame(Opcode.PING, b"x" * 100).serialize(mask=True))
    await live.until(lambda: connection._reading_paused, "backpressure")
    client.transport.resumeProducing()
    assert (await client.next())["id"] == "1"
    client.subscribe("2", "{ __typename }")
    while (message := await client.next())["id"] != "2":
        assert message == completion("1")


async def test_busy_client_is_not_taken_for_a_silent_one(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a message waits for running operations, the client's pongs are not read either."""
    monkeypatch.setattr(websocket, "MAX_RUNNING", 1)
    client = await (await clients()).initialise()
    [connection] = live.site.connections
    client.subscribe("a", "mutation { slow(seconds: 60) }")
    client.subscribe("b", ITEM)
    await live.until(lambda: connection._reading_paused, "the second message to wait")
    for _ in range(2 * websocket._MAX_UNANSWERED):
        connection.feed._check()
    await live.until(
        lambda: live.database.execute(
            "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'"
        ),
        "the statement",
    )
    while (message := await client.next())["id"] != "b":
        assert message["type"] in ("next", "complete")
    assert message == result("b", item("before"))


@pytest.mark.parametrize("later", ['{"type": "complete", "id": "a"}', "{"])
async def test_message_that_ends_a_beginning_subscription_spares_the_connection(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """The message waits until the subscription no longer counts as a running operation."""
    monkeypatch.setattr(websocket, "MAX_RUNNING", 1)
    client = await (await clients()).initialise()
    client.subscribe("a", ITEM)
    client.send_text(later)
    if later == "{":
        closed = await client.end()
        assert closed is not None
        assert closed[0] == 4400
    else:
        client.subscribe("b", ITEM)
        assert await client.next() == result("b", item("before"))
        await live.until(lambda: live.figures.subscribers == 1, "the end of the first subscription")


async def test_slow_client_gets_the_newest_state(live: LiveService, clients: Connect) -> None:
    live.database.execute("insert into item values (2, repeat('x', 3000000))")
    client = await (await clients()).initialise()
    client.subscribe("a", f"subscription {NAMES}")
    await client.next()
    client.transport.pauseProducing()
    for number in range(8):
        changed = live.figures.changed
        live.database.execute(f"update item set name = 'state {number}' where id = 1")
        await live.until(lambda: live.figures.changed > changed, "the run")  # noqa: B023
    assert 0 < live.figures.unsent_bytes < 8_000_000
    client.transport.resumeProducing()
    seen: list[str] = []
    while not seen or seen[-1] != "state 7":
        message = await client.next()
        seen.append(message["payload"]["data"]["itemCollection"]["edges"][0]["node"]["name"])
    assert len(seen) < 8
    await live.until(lambda: live.figures.unsent_bytes == 0, "the unsent bytes to be sent")


async def test_stalled_subscriber_is_disconnected(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.database.execute("update item set name = repeat('x', %s)", (LARGE,))
    client = await (await clients()).initialise()
    client.transport.pauseProducing()
    client.subscribe("a", ITEM)
    await live.until(lambda: live.figures.unsent_bytes > LARGE, "the result")
    monkeypatch.setattr(subscribers, "STALL_TIMEOUT", 0.0)
    await live.until(lambda: live.figures.connections == 0, "the disconnection")


async def test_silent_client_is_disconnected(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "HEARTBEAT_INTERVAL", 0.01)
    monkeypatch.setattr(websocket, "_MAX_UNANSWERED", 20)
    client = await (await clients()).initialise()
    [connection] = live.site.connections
    connection.feed._check()
    while client.pings < 30:  # the client responds to pings
        await client.change()
    client.transport.write = lambda _data: None
    await client.end()
    assert client.closed is None


async def test_incomplete_messages_count_as_request_bodies(live: LiveService, clients: Connect) -> None:
    """Incomplete frames count, and so do complete frames of an incomplete message."""
    client, other = await clients(), await clients()
    client.send_raw(b"\x81\xff" + (100_000).to_bytes(8) + b"\0\0\0\0" + b"x" * 90_000)
    await live.until(lambda: live.site.bodies.free < 40_000, "the reservation")
    other.send_frame(Opcode.TEXT, b"x" * 60_000, fin=False)
    assert await other.end() == (1013, "Too many large messages are being received")
    client.send_raw(b"x" * 10_000)
    closed = await client.end()
    assert closed is not None
    assert closed[0] == 4400


async def test_large_operations_count_as_request_bodies(live: LiveService, clients: Connect) -> None:
    client = await (await clients()).initialise()
    client.subscribe("a", f"subscription {NAMES} #{'x' * 60_000}")
    await client.next()
    assert live.site.bodies.free < 60_000
    client.subscribe("b", f"subscription {NAMES} #{'x' * 80_000}")
    closed = await client.end()
    assert closed is not None
    assert closed[0] == 1013


# ---------------------------------------------------------------- the end


async def test_drain_finishes_operations_and_closes_connections(live: LiveService, clients: Connect) -> None:
    idle, waiting = await clients(), await (await clients()).initialise()
    client = await (await clients()).initialise()
    client.subscribe("a", ITEM)
    await client.next()
    client.subscribe("m", "mutation { slow(seconds: 0.3) }")
    sleeping = "select count(*) from pg_stat_activity where state = 'active' and wait_event = 'PgSleep'"
    await live.until(lambda: live.database.execute(sleeping) == [(1,)], "the statement")
    await live.part.drain()
    late = await clients()
    client.subscribe("late", ITEM)
    restart = 1012, "The daemon is shutting down"
    assert [await each.end() for each in (idle, waiting)] == [restart, restart]
    assert late.status == 503
    assert await client.next() == result("m", {"data": {"slow": 9}})
    assert await client.next() == completion("m")
    assert await client.end() == restart
    assert not client.received


async def test_client_that_does_not_confirm_the_end_is_disconnected(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT", 0.01)
    client = await (await clients()).initialise()
    client.transport.write = lambda _data: None
    await live.part.drain()
    await client.end()


async def test_disconnect_releases_everything(live: LiveService, clients: Connect) -> None:
    client = await (await clients()).initialise()
    client.subscribe("a", ITEM)
    await client.next()
    client.subscribe("m", "mutation { slow(seconds: 60) }")
    client.send_frame(Opcode.TEXT, b"x" * 50_000, fin=False)
    sleeping = "select count(*) from pg_stat_activity where state = 'active' and wait_event = 'PgSleep'"
    await live.until(lambda: live.database.execute(sleeping) == [(1,)], "the statement")
    client.abort()
    await live.until(lambda: live.database.execute(sleeping) == [(0,)], "the cancellation")


async def test_disabled_live_queries_disable_websockets(disabled: LiveService, reactor: Any) -> None:
    client = await connect(reactor, disabled.url, ("apikey", KEY))
    assert client.status == 400
    await client.end()


@pytest.mark.parametrize("seed", range(4))
async def test_any_sequence_of_messages_releases_everything(
    live: LiveService, clients: Connect, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The fixture ``clients`` checks that no resources are left."""
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT", 0.05)
    monkeypatch.setattr(websocket, "MAX_RUNNING", 2)
    chance = random.Random(seed)
    texts = [ITEM, NAMES, "{ nothing }", "mutation { slow(seconds: 0.05) }", f"{ITEM} #{'x' * 30_000}"]

    async def act(client: SocketClient) -> None:
        name = chance.choice("abcd")
        match chance.choice(
            ["subscribe"] * 8
            + ["complete", "complete", "ping", "renew", "wait", "change"] * 2
            + ["raw", "frame", "close", "abort", "init", "drop"]
        ):
            case "subscribe":
                client.subscribe(name, chance.choice(texts))
            case "complete":
                client.send("complete", id=name)
            case "ping":
                client.send("ping")
            case "renew":
                client.send("ping", payload={"authorization": bearer(100)})
            case "wait":
                await deferLater(live.reactor, chance.random() / 50)
            case "change":
                live.database.execute("update item set name = %s", (str(chance.random()),))
            case "raw":
                client.send_raw(chance.randbytes(chance.randrange(1, 100)))
            case "frame":
                client.send_frame(
                    chance.choice((Opcode.TEXT, Opcode.CONT, Opcode.BINARY)),
                    chance.randbytes(100),
                    fin=chance.random() < 0.5,
                )
            case "close":
                client.close()
            case "abort":
                client.abort()
            case "drop":
                client.transport.write = lambda _data: None
            case "init":
                client.send("connection_init", payload={"apikey": KEY})

    for _ in range(8):
        try:
            client = await (await clients()).initialise(authorization=bearer(100))
            for _ in range(30):
                if client.has_ended or client.closed is not None:
                    break
                await act(client)
        except (AssertionError, InvalidState):
            pass  # there are too many connections, or this connection is closing
        finally:
            client.abort()
            await client.end()
