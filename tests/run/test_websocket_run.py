"""WebSockets of browsers, through proxies, over TLS, and while a daemon stops."""

from __future__ import annotations

import json
import ssl
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
from dataapi.testing import free_port
from support.certificates import make_certificate
from support.chromium import chromium
from support.daemon import KEY, PATIENCE, Daemon, wait_for
from support.node import CLIENTS, install
from support.proxies import installed_proxies, proxied
from support.service import run
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.typing import Subprotocol

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page, Route
    from support.postgres import Database, Server

SCHEMA = """
create table item (id int primary key, name text not null);
insert into item values (1, 'first');
grant select on item to anon;
"""
ORIGIN = "https://app.example.org"
PROJECT = {
    "live-interval": "0.1",
    "graphql-features": "subscriptions",
    "server-cors-allowed-origins": ORIGIN,
}
QUERY = "subscription { itemByPk(id: 1) { name } }"
PAGE = """
<script type="module">
  import { createClient } from "/client.js";
  window.names = [[], [], []];
  window.events = [];
  window.start = (url, apikey, query) => window.names.forEach((names) => {
    let closed;
    const on = {
      closed: (event) => { closed = performance.now(); window.events.push(event.code); },
      connecting: (isRetry) => isRetry && window.events.push(Math.round(performance.now() - closed)),
    };
    createClient({ url, connectionParams: { apikey }, on }).subscribe({ query }, {
      next: (result) => names.push(result.data.itemByPk.name),
      error: (error) => window.events.push(error.code ?? String(error)),
      complete: () => window.events.push("complete"),
    });
  });
</script>
"""
"""A page with three clients. It records received names, close codes, and delays before reconnects."""


@pytest.fixture
def database(server: Server) -> Database:
    return server.create_database(SCHEMA)


def rename(database: Database, name: str) -> None:
    database.execute("update item set name = %s", (name,))


@pytest.fixture
def library(npm_clients: Path, reactor: Any) -> Path:
    """Return the directory with the modules of graphql-ws."""
    run(install(reactor, npm_clients, *CLIENTS))
    return npm_clients / "node_modules" / "graphql-ws" / "dist"


def opened(page: Page, library: Path, origin: str, port: int) -> Page:
    """Open the page at an origin and make its clients subscribe."""

    def serve(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if name == "page":
            route.fulfill(body=PAGE, content_type="text/html")
        else:
            route.fulfill(path=library / name, content_type="text/javascript")

    page.route(f"{origin}/**", serve)
    page.goto(f"{origin}/page")
    page.wait_for_function("window.start !== undefined")
    page.evaluate(
        "([url, key, query]) => start(url, key, query)", [f"wss://127.0.0.1:{port}/graphql/v1", KEY, QUERY]
    )
    return page


@pytest.mark.time_limit(180)
def test_browsers_reconnect_through_proxies(database: Database, library: Path, tmp_path: Path) -> None:
    """The clients of a stopping daemon wait for random times, and then receive the current result."""
    proxies = installed_proxies()
    with ExitStack() as stack:
        daemons = []
        for name in ("stopping", "other"):
            (tmp_path / name).mkdir()
            daemons.append(stack.enter_context(Daemon(tmp_path / name, database.uri, project=PROJECT)))
        for daemon in daemons:
            daemon.wait_ready()
        context = stack.enter_context(chromium()).new_context(ignore_https_errors=True)
        context.grant_permissions(["local-network-access"])
        pages, ports = [], []
        for proxy in proxies:
            (tmp_path / proxy).mkdir()
            ports.append(stack.enter_context(proxied(proxy, tmp_path / proxy, daemons)).port)
            pages.append(opened(context.new_page(), library, ORIGIN, ports[-1]))
        for page in pages:
            page.wait_for_function("names.every((each) => each.at(-1) === 'first')")
        connections = 'dataapi_live_connections{project="abcdefghijklmnopqrst"}'
        ended = daemons[0].metric(connections)
        assert ended > 0
        assert daemons[0].stop() == 0
        rename(database, "second")
        for page in pages:
            page.wait_for_function("names.every((each) => each.at(-1) === 'second')")
        events = [event for page in pages for event in page.evaluate("window.events")]
        assert events.count(1012) == ended
        delays = [event for event in events if event not in (1012, 1006)]  # 1006: the proxy retried too early
        assert all(isinstance(delay, int) and delay >= 1300 for delay in delays), events
        assert len(set(delays)) == len(delays) >= ended
        assert daemons[1].metric(connections) == 3 * len(pages)

        foreign = opened(context.new_page(), library, "https://evil.example", ports[0])
        foreign.wait_for_function("events.includes(1006)")
        assert foreign.evaluate("window.names") == [[], [], []]


def subscribed(client: Connection) -> Connection:
    """Initialise a connection and subscribe."""
    client.send(json.dumps({"type": "connection_init", "payload": {"apikey": KEY}}))
    assert json.loads(client.recv()) == {"type": "connection_ack"}
    client.send(json.dumps({"type": "subscribe", "id": "1", "payload": {"query": QUERY}}))
    return client


def name(client: Connection) -> str:
    """Wait for the next result and return the name that it contains."""
    return str(json.loads(client.recv())["payload"]["data"]["itemByPk"]["name"])


def test_tls_listener_serves_websockets_and_its_own_url(database: Database, tmp_path: Path) -> None:
    port, certificate = free_port(), make_certificate(tmp_path)
    listen = f"ssl:{port}:interface=127.0.0.1:privateKey={certificate}:certKey={certificate}"
    settings = {"listen": listen, "mcp": "yes"}
    with Daemon(tmp_path, database.uri, settings=settings, project=PROJECT) as daemon:
        daemon.wait_ready()
        context = ssl._create_unverified_context()
        resource = fetched(context, port, "/.well-known/oauth-protected-resource")["resource"]
        assert resource == f"https://127.0.0.1:{port}/mcp"
        swagger = fetched(context, port, "/rest/v1/", Accept="application/openapi+json")
        assert swagger["schemes"] == ["https"]
        with connect(
            f"wss://127.0.0.1:{port}/graphql/v1",
            ssl=context,
            subprotocols=[Subprotocol("graphql-transport-ws")],
            max_size=None,
        ) as client:
            assert name(subscribed(client)) == "first"
            for text in ("x" * 5_000_000, "second"):
                rename(database, text)
                assert name(client) == text
            assert daemon.stop() == 0
            with pytest.raises(ConnectionClosed) as ended:
                client.recv()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1012


def fetched(context: ssl.SSLContext, port: int, path: str, **headers: str) -> Any:
    request = Request(f"https://127.0.0.1:{port}{path}", headers={"apikey": KEY, **headers})
    with urlopen(request, context=context, timeout=PATIENCE) as response:
        return json.load(response)


def test_connections_of_all_workers_are_counted(database: Database, tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, database.uri, settings={"workers": "2"}, project=PROJECT) as daemon,
        ExitStack() as stack,
    ):
        daemon.wait_ready()
        url = f"ws://127.0.0.1:{daemon.port}/graphql/v1"
        clients = [
            subscribed(stack.enter_context(connect(url, subprotocols=[Subprotocol("graphql-transport-ws")])))
            for _ in range(6)
        ]
        for client in clients:
            assert name(client) == "first"
        for metric in ("connections", "subscribers"):
            sample = f'dataapi_live_{metric}{{project="abcdefghijklmnopqrst"}}'
            wait_for(lambda: daemon.metric(sample) == len(clients), metric)  # noqa: B023
        assert daemon.stop() == 0
