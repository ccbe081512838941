"""Persisted documents of a running daemon, with one process and with workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.daemon import KEY, Answer, Daemon, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database

TYPENAME = "{ __typename }"
SYNTAX_ERROR = "Syntax Error: Expected Name, found <EOF>. at line 1 column 2"
BROKEN = f"broken.graphql: document 'broken' is skipped: {SYNTAX_ERROR}"


def by_id(daemon: Daemon, document_id: str) -> Answer:
    body = json.dumps({"documentId": document_id})
    return daemon.request("POST", "/graphql/v1", body, {"apikey": KEY})


@pytest.fixture(params=["1", "2"], ids=["one process", "two workers"])
def daemon(served: Database, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Yield a running daemon whose document folder is relative to its working directory."""
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "First.graphql").write_text(TYPENAME)
    (documents / "broken.graphql").write_text("{")
    settings = {"workers": request.param}
    project = {"graphql-documents": "documents", "graphql-documents-only": "yes"}
    with Daemon(tmp_path, served.uri, settings=settings, project=project) as running:
        running.wait_ready()
        yield running


def test_documents_are_read_at_startup_and_on_reload(daemon: Daemon) -> None:
    assert by_id(daemon, "First").json == {"data": {"__typename": "Query"}}
    assert daemon.graphql("{ other: __typename }").json["errors"][0]["extensions"] == {
        "code": "PERSISTED_DOCUMENT_REQUIRED"
    }
    [project] = daemon.admin("GET", "/ready").json["projects"]
    assert project["problems"] == [f"graphql-documents: {BROKEN}"]
    assert any(line["message"].endswith(BROKEN) for line in daemon.lines)

    documents = daemon.folder / "documents"
    (documents / "Second.graphql").write_text("{ second: __typename }")
    (documents / "broken.graphql").unlink()
    assert "errors" in by_id(daemon, "Second").json
    assert daemon.admin("POST", "/reload").status == 200
    for _ in range(10):  # very probably reaches every worker
        assert by_id(daemon, "Second").json == {"data": {"second": "Query"}}

    def problems() -> list[str]:
        [project] = daemon.admin("GET", "/ready").json["projects"]
        return list(project["problems"])

    # /ready does not wait until the workers have reported their new state.
    wait_for(lambda: problems() == [], "the end of the problems")


def test_documents_stay_available_when_the_folder_is_removed(daemon: Daemon) -> None:
    documents = daemon.folder / "documents"
    documents.rename(daemon.folder / "elsewhere")
    reloaded = daemon.admin("POST", "/reload")
    assert reloaded.status == 503
    assert "graphql-documents" in reloaded.json["failures"]["configuration"]
    assert by_id(daemon, "First").json == {"data": {"__typename": "Query"}}
    assert any(
        line["message"] == f"graphql-documents: {documents}: No such file or directory"
        for line in daemon.lines
    )
