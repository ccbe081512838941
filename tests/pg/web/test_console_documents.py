"""Persisted documents in the console (docs/console.md, GraphQL)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database
    from support.service import Service

SCHEMA = "create table item (id int primary key);"
NAMED, SHORT = "query Named { __typename }\n", "{ __typename }"


@pytest.fixture
def documented(reactor: Any, database: Database, tmp_path: Path) -> Iterator[Service]:
    database.execute(SCHEMA)
    (tmp_path / "Named.graphql").write_text(NAMED)
    (tmp_path / "manifest.json").write_text(json.dumps({"b": SHORT, "a": SHORT}))
    with serving(reactor, database, graphql_documents=tmp_path) as service:
        yield service


async def test_service_role_sees_ids_and_texts_in_order(documented: Service) -> None:
    response = await documented.console("documents", role="service_role")
    assert response.body == {
        "documents": [
            {"id": "Named", "text": NAMED},
            {"id": "a", "text": SHORT},
            {"id": "b", "text": SHORT},
        ]
    }
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("role", ["anon", "authenticated"])
async def test_documents_are_hidden_from_other_roles(documented: Service, role: str) -> None:
    response = await documented.console("documents", role=role)
    assert (response.status, "Named" in response.text) == (403, False)


async def test_no_documents_are_listed_without_a_folder(service: Service) -> None:
    response = await service.console("documents", role="service_role")
    assert response.body == {"documents": []}
