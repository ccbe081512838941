"""The APIs as the clients see them that people use: Apollo Client, urql, graphql-js and postgrest-js."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.cli.main import run
from support.memory_http import KEY
from support.node import CLIENTS, install, run_script
from support.service import serving, token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from support.postgres import Server
    from support.service import Service

    Client = Callable[..., Awaitable[Any]]

SCRIPT = Path(__file__).parent / "clients.mjs"

LONG_NAME = "C. Monteverdi, Nigel Rogers - Chiaroscuro; London Baroque; London Cornett & Sackbu"

ARTIST = "query Artist($id: Int!) { artistByPk(artistId: $id) { nodeId name } }"

pytestmark = pytest.mark.time_limit(180)  # the first run of a machine installs the packages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    (path / "Artist.graphql").write_text(ARTIST)
    return path


@pytest.fixture(scope="module")
def api(server: Server, folder: Path, reactor: Any) -> Iterator[Service]:
    database = server.create_chinook()
    database.execute(
        'comment on schema public is \'@graphql({"inflect_names": true, "introspection": true})\''
    )
    with serving(reactor, database, graphql_documents=folder) as service:
        yield service


@pytest.fixture
def client(api: Service, npm_clients: Path, reactor: Any) -> Client:

    async def perform(task: str, role: str = "anon", **given: Any) -> Any:
        await install(reactor, npm_clients, *CLIENTS)
        headers = {"apikey": KEY}
        if role != "anon":
            headers["authorization"] = f"Bearer {token(role)}"
        arguments = (str(npm_clients), task, api.url, json.dumps(headers), json.dumps(given))
        return json.loads(await run_script(reactor, SCRIPT, *arguments))

    return perform


async def test_apollo_queries_and_normalises_rows_by_their_node_id(client: Client) -> None:
    collection = "{ artistCollection(filter: {artistId: {eq: 1}}) { edges { node { nodeId name } } } }"
    operations = [{"query": ARTIST, "variables": {"id": 1}}, {"query": collection}]
    answer = await client("apollo", operations=operations)
    first, second = (result["data"] for result in answer["results"])
    assert first["artistByPk"]["name"] == "AC/DC"
    assert second["artistCollection"]["edges"][0]["node"] == first["artistByPk"]
    row = first["artistByPk"]
    assert answer["cached"][row["nodeId"]] == row
    assert row["__typename"] == "Artist"


async def test_apollo_mutates_and_reads_what_it_wrote(client: Client) -> None:
    mutation = """
        mutation ($title: String!) {
            insertIntoAlbumCollection(objects: [{albumId: 900, title: $title, artistId: 1}]) {
                affectedCount records { title artist { name } } } }
    """
    query = "{ albumByPk(albumId: 900) { title } }"
    operations = [{"mutation": mutation, "variables": {"title": "Wire"}}, {"query": query}]
    answer = await client("apollo", "authenticated", operations=operations)
    inserted, read = (result["data"] for result in answer["results"])
    [record] = inserted["insertIntoAlbumCollection"]["records"]
    assert (record["title"], record["artist"]["name"]) == ("Wire", "AC/DC")
    assert read["albumByPk"]["title"] == "Wire"


async def test_apollo_hands_errors_on_with_their_codes(client: Client) -> None:
    duplicate = 'mutation { insertIntoGenreCollection(objects: [{genreId: 1, name: "x"}]) { affectedCount } }'
    operations = [
        {"mutation": duplicate},
        {"query": "{ artistCollection { nothing } }"},
        {"query": ARTIST, "variables": {"id": "one"}},
    ]
    answer = await client("apollo", "authenticated", operations=operations)
    database, validation, variables = (result["errors"][0] for result in answer["results"])
    assert database["extensions"]["code"] == "23505"
    assert validation["message"].startswith("Cannot query field 'nothing' on type 'ArtistConnection'")
    assert validation["locations"]
    assert "$id" in variables["message"]


async def test_apollo_sends_the_hash_of_a_persisted_document_alone(
    client: Client, api: Service, folder: Path
) -> None:
    manifest = await client("apollo-manifest", query=ARTIST)
    (folder / "persisted-query-manifest.json").write_text(json.dumps(manifest))
    await api.reload()
    answer = await client("apollo-persisted", operations=[{"query": ARTIST, "variables": {"id": 2}}])
    assert answer["results"][0]["data"]["artistByPk"]["name"] == "Accept"
    assert answer["sent"] == [["extensions", "operationName", "variables"]]


async def test_apollo_sends_the_text_when_a_hash_is_unknown(client: Client) -> None:
    answer = await client("apollo-persisted", operations=[{"query": "{ artistByPk(artistId: 3) { name } }"}])
    assert answer["results"][0]["data"]["artistByPk"]["name"] == "Aerosmith"
    hash_alone, with_text = answer["sent"]
    assert "query" not in hash_alone
    assert "query" in with_text


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_urql_sends_a_document_id(client: Client, method: str) -> None:
    """Its persisted documents work by POST and by GET."""
    answer = await client("urql", documentId="Artist", variables={"id": 1}, method=method)
    assert answer["data"]["artistByPk"]["name"] == "AC/DC"
    assert answer["sent"] == (["GET"] if method == "GET" else [["documentId", "variables"]])


async def test_urql_hands_errors_on(client: Client) -> None:
    answer = await client("urql", documentId="unknown", variables={})
    assert "network" not in answer
    assert answer["errors"][0]["extensions"]["code"] == "PERSISTED_DOCUMENT_NOT_FOUND"
    answer = await client("urql", query="{ nothing }", variables={})
    assert "network" not in answer
    assert answer["errors"][0]["message"].startswith("Cannot query field 'nothing' on type 'Query'")


@pytest.mark.parametrize("role", ["anon", "authenticated"])
async def test_graphql_js_reads_introspection_and_the_printed_schema_alike(
    client: Client, api: Service, role: str
) -> None:
    """Code generators get the same schema from a server that shows it and from ``dataapi schema``."""
    output, errors = io.StringIO(), io.StringIO()
    environ = {"DATAAPI_PROJECT_DB_URI": api.database.uri, "DATAAPI_PROJECT_REQUIRE_API_KEY": "no"}
    assert run(["schema", "--role", role], environ, output, errors) == 0, errors.getvalue()
    answer = await client("schema", role, sdl=output.getvalue())
    assert answer["faults"] == []
    assert "type Artist implements Node" in answer["printed"]
    assert answer["introspected"] == answer["printed"]


async def test_postgrest_js_reads_a_table(client: Client) -> None:
    """Columns, aliases, order, ranges and exact counts; an unknown table is PostgREST's error."""
    page, unknown = await client("postgrest")
    assert page["data"] == [
        {"artist_id": 274, "title": "Nash Ensemble"},
        {"artist_id": 273, "title": LONG_NAME},
    ]
    assert (page["count"], page["error"]) == (275, None)
    assert (unknown["data"], unknown["status"], unknown["error"]["code"]) == (None, 404, "PGRST205")
