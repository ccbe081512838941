"""Fixtures of tests that run daemons."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support import documents
from support.daemon import SCHEMA
from support.installation import PATIENT, Installation
from support.pooler import pooled_if_enabled
from support.postgres import Server
from support.recorder import Recorder
from support.story import Story
from support.webhooks import migrated_copy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database


@pytest.fixture(scope="module")
def served(server: Server) -> Database:
    """Return a database with a quick and a slow query."""
    return server.create_database(SCHEMA)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as made:
        yield made


@pytest.fixture
def installation(server: Server, recorder: Recorder, tmp_path: Path) -> Iterator[Installation]:
    """Yield a webhooks installation with a long timeout. The test starts the daemons."""
    database = migrated_copy(server)
    made = Installation(tmp_path, database, recorder, settings={"timeout": str(PATIENT)})
    yield made
    made.end()
    server.drop_database(database)


@pytest.fixture(scope="module")
def own_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """Yield a PostgreSQL server that the tests may stop."""
    made = Server()
    try:
        made.create()
        with pooled_if_enabled(pytestconfig, made):
            yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    """Yield a PostgreSQL server that requires passwords over TCP, like Debian's."""
    made = Server()
    try:
        made.create()
        if shutil.which("curl") is None or not made.has_program("createdb"):
            pytest.skip("the documents need curl and createdb")
        made.require_password("authenticator")
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def signed_in(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Yield a story after it has run the tutorial, including the chapter Sign in."""
    with Story.on_debian(tmp_path_factory.mktemp("reader"), cluster) as made:
        tutorial = documents.read("docs/tutorial.md")
        for title in ("Set up a database", "Create a table", "Start the daemon", "Sign in"):
            made.read(documents.chapter(tutorial, title))
        yield made
