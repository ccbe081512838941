"""A database for the daemons under test."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support import documents
from support.daemon import SCHEMA
from support.installation import PATIENT, Installation
from support.pooler import pooled_if_asked
from support.postgres import Server
from support.recorder import Recorder
from support.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database


@pytest.fixture(scope="module")
def served(server: Server) -> Database:
    """Give a database whose daemons answer quickly or slowly, as asked."""
    return server.create_database(SCHEMA)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Give a receiver."""
    with Recorder() as made:
        yield made


@pytest.fixture
def installation(server: Server, recorder: Recorder, tmp_path: Path) -> Iterator[Installation]:
    """Give webhooks whose attempts may take long, without a daemon yet."""
    database = server.create_database()
    made = Installation(tmp_path, database, recorder, settings={"timeout": str(PATIENT)})
    yield made
    made.end()
    server.drop_database(database)


@pytest.fixture(scope="module")
def own_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """Give a cluster that may be stopped."""
    made = Server()
    try:
        made.create()
        with pooled_if_asked(pytestconfig, made):
            yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    """Give a server that takes passwords over TCP, as Debian's does."""
    made = Server()
    try:
        made.create()
        if shutil.which("curl") is None or not made.has_program("createdb"):
            pytest.skip("curl or createdb is not installed, which the documents use")
        made.require_password("authenticator")
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def signed_in(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Give a reader of the tutorial up to where users sign in; what is read then adds tables of its own."""
    with Story.on_debian(tmp_path_factory.mktemp("reader"), cluster) as made:
        tutorial = documents.read("docs/tutorial.md")
        for title in ("Set up a database", "Create a table", "Start the daemon", "Sign in"):
            made.read(documents.chapter(tutorial, title))
        yield made
