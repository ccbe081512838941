"""Persisted documents over HTTP."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Server

GRAPHQL = "application/graphql-response+json"
ARTIST = "query Artist($id: Int!) { artistByPk(artistId: $id) { name } }"
RENAME = (
    'mutation { updateArtistCollection(set: {name: "x"}, filter: {artistId: {eq: -1}}) { affectedCount } }'
)
TWO = "query A { a: __typename } query B { b: __typename }"
INTROSPECTION = "{ __schema { queryType { name } } }"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    (path / "Artist.graphql").write_text(f"{ARTIST}\n")
    (path / "relay.json").write_text(json.dumps({"9b1d": RENAME, "two": TWO, "types": INTROSPECTION}))
    return path


@pytest.fixture(scope="module")
def api(server: Server, folder: Path, reactor: Any) -> Iterator[Service]:
    database = server.create_chinook()
    database.execute("comment on schema public is '@graphql({\"inflect_names\": true})'")
    with serving(reactor, database, graphql_documents=folder) as service:
        yield service


@pytest.fixture(scope="module")
def closed(server: Server, folder: Path, reactor: Any) -> Iterator[Service]:
    """Serve only the documents of the folder."""
    database = server.create_chinook()
    database.execute(
        'comment on schema public is \'@graphql({"inflect_names": true, "introspection": true})\''
    )
    with serving(reactor, database, graphql_documents=folder, graphql_documents_only=True) as service:
        yield service


async def post(api: Service, *, accept: str = GRAPHQL, role: str = "anon", **members: Any) -> Any:
    return await api.send(json.dumps(members).encode(), role=role, headers={"accept": accept})


@pytest.mark.parametrize(
    "document_id",
    ["Artist", sha256(ARTIST), f"sha256:{sha256(ARTIST)}", f"sha256:{sha256(ARTIST + chr(10))}"],
    ids=["name", "hash", "prefixed hash", "hash with the file's line end"],
)
async def test_document_is_found_by_id_or_hash(api: Service, document_id: str) -> None:
    expected = {"artistByPk": {"name": "AC/DC"}}
    assert (await post(api, documentId=document_id, variables={"id": 1})).data == expected
    assert (await api.get({"documentId": document_id, "variables": '{"id": 1}'})).data == expected


async def test_ids_of_a_manifest_identify_documents(api: Service) -> None:
    response = await post(api, documentId="9b1d", role="authenticated")
    assert response.data == {"updateArtistCollection": {"affectedCount": 0}}


async def test_operation_name_selects_an_operation_of_a_persisted_document(api: Service) -> None:
    assert (await post(api, documentId="two", operationName="B")).data == {"b": "Query"}
    assert (await post(api, documentId="two")).error.startswith("Must provide operation name")


async def test_persisted_mutation_requires_post(api: Service) -> None:
    """The GraphQL-over-HTTP draft, Appendix A, requires status 405."""
    response = await api.get({"documentId": "9b1d"}, role="authenticated")
    assert (response.status, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(("accept", "status"), [(GRAPHQL, 400), ("application/json", 200)])
async def test_unknown_id_is_a_request_error(api: Service, accept: str, status: int) -> None:
    responses = [
        await post(api, accept=accept, documentId="nobody"),
        await api.get({"documentId": "nobody"}, headers={"accept": accept}),
    ]
    for response in responses:
        assert response.status == status
        assert response.headers["content-type"].startswith(accept)
        assert response.body == {
            "errors": [
                {
                    "message": "No document has the id 'nobody'.",
                    "extensions": {"code": "PERSISTED_DOCUMENT_NOT_FOUND"},
                }
            ]
        }


async def test_apollo_names_a_document_by_its_hash(api: Service) -> None:
    extensions = {"persistedQuery": {"version": 1, "sha256Hash": sha256(ARTIST)}}
    expected = {"artistByPk": {"name": "Accept"}}
    assert (await post(api, extensions=extensions, variables={"id": 2})).data == expected
    members = {"extensions": json.dumps(extensions), "variables": '{"id": 2}'}
    # A browser's Accept header must not return the console page for a GraphQL request.
    response = await api.get(members, headers={"accept": "text/html,*/*;q=0.8"})
    assert response.data == expected


@pytest.mark.parametrize(("accept", "status"), [(GRAPHQL, 400), ("application/json", 200)])
async def test_unknown_hash_has_the_error_that_apollo_expects(api: Service, accept: str, status: int) -> None:
    extensions = {"persistedQuery": {"version": 1, "sha256Hash": sha256("{ __typename }")}}
    for _ in range(2):
        response = await post(api, accept=accept, extensions=extensions)
        assert response.status == status
        assert response.body == {
            "errors": [
                {"message": "PersistedQueryNotFound", "extensions": {"code": "PERSISTED_QUERY_NOT_FOUND"}}
            ]
        }
        sent = await post(api, accept=accept, extensions=extensions, query="{ __typename }")
        assert sent.data == {"__typename": "Query"}


async def test_query_and_id_together_are_rejected(api: Service) -> None:
    response = await post(api, query="{ __typename }", documentId="Artist")
    assert response.status == 400
    assert response.error == "query and documentId are both present; expected one of them"


@pytest.mark.parametrize("accept", [GRAPHQL, "application/json"])
async def test_only_persisted_documents_run_if_others_are_forbidden(closed: Service, accept: str) -> None:
    response = await post(closed, accept=accept, query="{ __typename }")
    assert response.status == (400 if accept == GRAPHQL else 200)
    assert "data" not in response.body
    assert response.errors[0]["extensions"] == {"code": "PERSISTED_DOCUMENT_REQUIRED"}
    assert response.messages == ()
    assert (await post(closed, query=ARTIST, variables={"id": 1})).data == {"artistByPk": {"name": "AC/DC"}}
    assert (await post(closed, documentId="two", operationName="A")).data == {"a": "Query"}


async def test_introspection_needs_a_persisted_document_if_required(closed: Service) -> None:
    response = await post(closed, query="{ __schema { types { name } } }")
    assert response.errors[0]["extensions"] == {"code": "PERSISTED_DOCUMENT_REQUIRED"}
    assert (await post(closed, documentId="types")).data == {"__schema": {"queryType": {"name": "Query"}}}


async def test_reload_reads_the_folder_again(api: Service, folder: Path) -> None:
    added = folder / "Later.graphql"
    added.write_text("{ later: __typename }")
    (folder / "broken.graphql").write_text("{")
    assert (await post(api, documentId="Later")).status == 400
    await api.reload()
    assert (await post(api, documentId="Later")).data == {"later": "Query"}
    added.unlink()
    await api.reload()
    assert (await post(api, documentId="Later")).status == 400
    assert (await post(api, documentId="two", operationName="A")).data == {"a": "Query"}
