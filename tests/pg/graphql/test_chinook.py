"""GraphQL over HTTP on the Chinook sample database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from graphql import validate_schema
from support.oracle import eager
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

QUERY = """
{ artistCollection(first: 2, filter: {name: {ilike: "a%"}}) {
    edges { cursor node { name
        albumCollection(orderBy: [{title: AscNullsLast}]) {
            edges { node { title
                trackCollection(first: 3) { edges { node { name milliseconds genre { name } } } } } } } } }
    pageInfo { hasNextPage endCursor } } }
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_chinook()
    database.execute("comment on schema public is '@graphql({\"inflect_names\": true})'")
    with serving(reactor, database) as service:
        yield service


def track(name: str, milliseconds: int) -> dict[str, Any]:
    return {"node": {"name": name, "milliseconds": milliseconds, "genre": {"name": "Rock"}}}


def album(title: str, *tracks: dict[str, Any]) -> dict[str, Any]:
    return {"node": {"title": title, "trackCollection": {"edges": list(tracks)}}}


EXPECTED = {
    "artistCollection": {
        "edges": [
            {
                "cursor": "WzFd",
                "node": {
                    "name": "AC/DC",
                    "albumCollection": {
                        "edges": [
                            album(
                                "For Those About To Rock We Salute You",
                                track("For Those About To Rock (We Salute You)", 343719),
                                track("Put The Finger On You", 205662),
                                track("Let's Get It Up", 233926),
                            ),
                            album(
                                "Let There Be Rock",
                                track("Go Down", 331180),
                                track("Dog Eat Dog", 215196),
                                track("Let There Be Rock", 366654),
                            ),
                        ]
                    },
                },
            },
            {
                "cursor": "WzJd",
                "node": {
                    "name": "Accept",
                    "albumCollection": {
                        "edges": [
                            album("Balls to the Wall", track("Balls to the Wall", 342562)),
                            album(
                                "Restless and Wild",
                                track("Fast As a Shark", 230619),
                                track("Restless and Wild", 252051),
                                track("Princess of the Dawn", 375418),
                            ),
                        ]
                    },
                },
            },
        ],
        "pageInfo": {"hasNextPage": True, "endCursor": "WzJd"},
    }
}


async def test_acceptance_query_needs_one_message(api: Service) -> None:
    response = await api.ask(QUERY)
    assert response.data == EXPECTED
    assert len(response.messages) == 1
    assert len(response.statements) == 1


async def test_prepared_statement_returns_the_same_data(api: Service) -> None:
    first, second = await api.ask(QUERY), await api.ask(QUERY)
    assert second.data == first.data == EXPECTED
    assert first.messages[0].statements[0].statement is second.messages[0].statements[0].statement


async def test_every_table_and_relationship_can_be_queried(api: Service) -> None:
    schema = api.schema().schema
    selections = []
    for entry in api.entries():
        if not entry.endswith("Collection"):
            continue
        node: Any = schema.type_map[entry[0].upper() + entry.removesuffix("Collection")[1:]]
        fields = []
        for name, field in node.fields.items():
            kind = str(field.type).strip("!")
            inner = "{ edges { cursor } }" if kind.endswith("Connection") else "{ nodeId }"
            fields.append(f"{name} {inner if hasattr(schema.type_map.get(kind), 'fields') else ''}")
        selections.append(f"{entry}(first: 2) {{ edges {{ node {{ {' '.join(fields)} }} }} }}")
    data = await api.data("{ " + " ".join(selections) + " }")
    assert len(data) == 11
    assert all(len(connection["edges"]) == 2 for connection in data.values())


async def test_self_reference_has_fields_in_both_directions(api: Service) -> None:
    """``reports_to`` does not end with ``_id``, so both fields are named after the table."""
    query = """{ employeeCollection(filter: {lastName: {eq: "Edwards"}}) { edges { node {
        employee { firstName } employeeCollection { edges { node { firstName } } } } } } }"""
    [edge] = (await api.data(query))["employeeCollection"]["edges"]
    assert edge["node"] == {
        "employee": {"firstName": "Andrew"},
        "employeeCollection": {
            "edges": [{"node": {"firstName": name}} for name in ("Jane", "Margaret", "Steve")]
        },
    }


def test_whole_schema_is_valid(api: Service) -> None:
    assert validate_schema(eager(api.schema())) == []
