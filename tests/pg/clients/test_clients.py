"""The APIs with popular clients: Apollo Client, urql, graphql-js and postgrest-js."""

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

pytestmark = pytest.mark.time_limit(180)  # the first run installs the packages


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

    async def perform(task: str, role: str = "anon", **options: Any) -> Any:
        await install(reactor, npm_clients, *CLIENTS)
        headers = {"apikey": KEY}
        if role != "anon":
            headers["authorization"] = f"Bearer {token(role)}"
        arguments = (str(npm_clients), task, api.url, json.dumps(headers), json.dumps(options))
        return json.loads(await run_script(reactor, SCRIPT, *arguments))

    return perform


async def test_apollo_normalises_rows_by_node_id(client: Client) -> None:
    collection = "{ artistCollection(filter: {artistId: {eq: 1}}) { edges { node { nodeId name } } } }"
    operations = [{"query": ARTIST, "variables": {"id": 1}}, {"query": collection}]
    response = await client("apollo", operations=operations)
    first, second = (result["data"] for result in response["results"])
    assert first["artistByPk"]["name"] == "AC/DC"
    assert second["artistCollection"]["edges"][0]["node"] == first["artistByPk"]
    row = first["artistByPk"]
    assert response["cached"][row["nodeId"]] == row
    assert row["__typename"] == "Artist"


async def test_apollo_reads_a_row_that_it_inserted(client: Client) -> None:
    mutation = """
        mutation ($title: String!) {
            insertIntoAlbumCollection(objects: [{albumId: 900, title: $title, artistId: 1}]) {
                affectedCount records { title artist { name } } } }
    """
    query = "{ albumByPk(albumId: 900) { title } }"
    operations = [{"mutation": mutation, "variables": {"title": "Wire"}}, {"query": query}]
    response = await client("apollo", "authenticated", operations=operations)
    inserted, read = (result["data"] for result in response["results"])
    [record] = inserted["insertIntoAlbumCollection"]["records"]
    assert (record["title"], record["artist"]["name"]) == ("Wire", "AC/DC")
    assert read["albumByPk"]["title"] == "Wire"


async def test_apollo_returns_errors_with_their_codes(client: Client) -> None:
    duplicate = 'mutation { insertIntoGenreCollection(objects: [{genreId: 1, name: "x"}]) { affectedCount } }'
    operations = [
        {"mutation": duplicate},
        {"query": "{ artistCollection { nothing } }"},
        {"query": ARTIST, "variables": {"id": "one"}},
    ]
    response = await client("apollo", "authenticated", operations=operations)
    database, validation, variables = (result["errors"][0] for result in response["results"])
    assert database["extensions"]["code"] == "23505"
    assert validation["message"].startswith("Cannot query field 'nothing' on type 'ArtistConnection'")
    assert validation["locations"]
    assert "$id" in variables["message"]


async def test_apollo_sends_only_the_hash_of_a_persisted_document(
    client: Client, api: Service, folder: Path
) -> None:
    manifest = await client("apollo-manifest", query=ARTIST)
    (folder / "persisted-query-manifest.json").write_text(json.dumps(manifest))
    await api.reload()
    response = await client("apollo-persisted", operations=[{"query": ARTIST, "variables": {"id": 2}}])
    assert response["results"][0]["data"]["artistByPk"]["name"] == "Accept"
    assert response["sent"] == [["extensions", "operationName", "variables"]]


async def test_apollo_sends_the_text_if_the_hash_is_unknown(client: Client) -> None:
    response = await client(
        "apollo-persisted", operations=[{"query": "{ artistByPk(artistId: 3) { name } }"}]
    )
    assert response["results"][0]["data"]["artistByPk"]["name"] == "Aerosmith"
    only_hash, with_text = response["sent"]
    assert "query" not in only_hash
    assert "query" in with_text


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_urql_sends_a_document_id(client: Client, method: str) -> None:
    response = await client("urql", documentId="Artist", variables={"id": 1}, method=method)
    assert response["data"]["artistByPk"]["name"] == "AC/DC"
    assert response["sent"] == (["GET"] if method == "GET" else [["documentId", "variables"]])


async def test_urql_returns_errors(client: Client) -> None:
    response = await client("urql", documentId="unknown", variables={})
    assert "network" not in response
    assert response["errors"][0]["extensions"]["code"] == "PERSISTED_DOCUMENT_NOT_FOUND"
    response = await client("urql", query="{ nothing }", variables={})
    assert "network" not in response
    assert response["errors"][0]["message"].startswith("Cannot query field 'nothing' on type 'Query'")


@pytest.mark.parametrize("role", ["anon", "authenticated"])
async def test_graphql_js_gets_equal_schemas_by_introspection_and_command(
    client: Client, api: Service, role: str
) -> None:
    output, errors = io.StringIO(), io.StringIO()
    environ = {"DATAAPI_PROJECT_DB_URI": api.database.uri, "DATAAPI_PROJECT_REQUIRE_API_KEY": "no"}
    assert run(["schema", "--role", role], environ, output, errors) == 0, errors.getvalue()
    response = await client("schema", role, sdl=output.getvalue())
    assert response["faults"] == []
    assert "type Artist implements Node" in response["printed"]
    assert response["introspected"] == response["printed"]


async def test_postgrest_js_reads_a_table(client: Client) -> None:
    page, unknown = await client("postgrest")
    assert page["data"] == [
        {"artist_id": 274, "title": "Nash Ensemble"},
        {"artist_id": 273, "title": LONG_NAME},
    ]
    assert (page["count"], page["error"]) == (275, None)
    assert (unknown["data"], unknown["status"], unknown["error"]["code"]) == (None, 404, "PGRST205")
