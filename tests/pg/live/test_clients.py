"""Live queries with graphql-sse, Apollo, urql, Relay and ``EventSource``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import documents
from support.live import LiveService, serving_live, signed
from support.memory_http import KEY
from support.node import CLIENTS, install, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCRIPT = Path(__file__).parent / "clients.mjs"
SCHEMA = """
create table item (id int primary key, name text not null);
insert into item values (1, 'before');
grant select, update on item to anon;
"""
GUIDE = documents.read("docs/live.md")

pytestmark = pytest.mark.time_limit(180)  # the first run installs npm packages


@pytest.fixture
def live(server: Server, reactor: Any) -> Iterator[LiveService]:
    with serving_live(reactor, server.create_database(SCHEMA)) as service:
        yield service


CHANGE = {"target": "item?id=eq.1", "body": {"name": "after"}}


async def results(live: LiveService, folder: Path, client: str, **options: Any) -> Any:
    """Return the client's first two results. The client makes the change between them."""
    await install(live.reactor, folder, *CLIENTS)
    arguments = (live.url, json.dumps({"apikey": KEY}), json.dumps({"change": CHANGE, **options}))
    return json.loads(await run_script(live.reactor, SCRIPT, str(folder), client, *arguments))


@pytest.mark.parametrize("client", ["graphqlSse", "apollo", "urql", "relay"])
async def test_client_receives_subscription_results(
    live: LiveService, npm_clients: Path, client: str
) -> None:
    query = "subscription Live { itemByPk(id: 1) { name } }"
    received = await results(live, npm_clients, client, query=query)
    assert [result["itemByPk"]["name"] for result in received] == ["before", "after"]


@pytest.mark.parametrize("client", ["graphqlWs", "graphqlWsRenewal", "apolloWs", "urqlWs"])
async def test_websocket_client_receives_subscription_results(
    live: LiveService, npm_clients: Path, client: str
) -> None:
    """A client whose token has expired reconnects with another token."""
    expired, valid, renewed = signed("anon", exp=1), signed("anon"), signed("anon", jti="renewed")
    tokens = [valid, renewed] if client == "graphqlWsRenewal" else [expired, valid]
    query = "subscription Live { itemByPk(id: 1) { name } }"
    received = await results(live, npm_clients, client, query=query, tokens=tokens)
    assert [result["itemByPk"]["name"] for result in received] == ["before", "after"]


async def test_event_source_receives_snapshots(live: LiveService, npm_clients: Path) -> None:
    received = await results(live, npm_clients, "eventSource", target="item?select=name")
    assert received == [[{"name": "before"}], [{"name": "after"}]]


# ---------------------------------------------------------------- docs/live.md


@pytest.fixture
def guide(server: Server, reactor: Any) -> Iterator[LiveService]:
    """Serve the table from docs/live.md with its comment and trigger, polling once an hour."""
    text = "".join(block.text for block in documents.blocks(GUIDE) if block.language == "sql")
    with serving_live(
        reactor, server.create_database(text), live_interval=3600.0, graphql_features=frozenset()
    ) as service:
        yield service


@pytest.mark.direct("a pooler forwards no notifications")
async def test_requests_of_the_guide_work(guide: LiveService) -> None:
    [command] = [block.text for block in documents.blocks(GUIDE) if block.language == "sh"]
    target = command.partition("$API")[2].partition('"')[0]
    [query] = [block.text for block in documents.blocks(GUIDE) if block.language == "graphql"]
    rest, graphql = await guide.open(target), await guide.graphql(query)
    assert (await guide.next(rest)).json == [{"id": 1, "room": "hall", "body": "Hello"}]
    await guide.next(graphql)
    guide.database.execute("insert into message (room, body) values ('hall', 'Goodbye')")
    assert [row["body"] for row in (await guide.next(rest)).json] == ["Hello", "Goodbye"]
    edges = (await guide.next(graphql)).json["data"]["messageCollection"]["edges"]
    assert [edge["node"]["body"] for edge in edges] == ["Hello", "Goodbye"]


async def test_programs_of_the_guide_work(
    guide: LiveService, npm_clients: Path, reactor: Any, tmp_path: Path
) -> None:
    """The programs use ``EventSource`` alone and with supabase-js, graphql-ws twice, and graphql-sse."""
    await install(reactor, npm_clients, *CLIENTS)
    programs = [block.text for block in documents.blocks(GUIDE) if block.language == "js"]
    query = next(block.text for block in documents.blocks(GUIDE) if block.language == "graphql")
    assert len(programs) == 5
    for number, program in enumerate(programs):
        token = (
            f"async () => {json.dumps(signed('anon'))}"
            if "token()" in program
            else json.dumps(signed("anon"))
        )
        names = "\n".join(
            f"const {name} = {value};"
            for name, value in {
                "API": json.dumps(guide.url),
                "key": json.dumps(KEY),
                "token": token,
                "query_text": json.dumps(query),
            }.items()
        )
        before = f"""
            import {{ EventSource }} from "eventsource";
            import {{ WebSocket }} from "ws";
            import {{ createClient as supabaseClient }} from "@supabase/supabase-js";
            {names}
            const supabase = supabaseClient(API, key, {{ realtime: {{ transport: class {{}} }} }});
            globalThis.WebSocket = WebSocket; // Node 20 has none
            const show = (data) => process.stdout.write(JSON.stringify(data), () => process.exit(0));
            const complain = show, signInAgain = show;
        """
        after = 'source.addEventListener("snapshot", (event) => show(JSON.parse(event.data)));'
        text = program.replace("{ query }", "{ query: query_text }")
        script = npm_clients / f"guide-{tmp_path.name}-{number}.mjs"
        script.write_text(before + text + (after if "supabase" in program else ""))
        try:
            printed = await run_script(reactor, script)
        finally:
            script.unlink()
        assert "Hello" in printed
