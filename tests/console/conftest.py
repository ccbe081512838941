"""A daemon and a browser that the console tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.chromium import chromium
from support.console import checked_page
from support.daemon import Daemon
from support.webhooks import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page
    from support.postgres import Database, Server

SCHEMA = """
create table note (id int primary key, title text not null, reader text not null);
insert into note values (1, 'For all', 'everybody'), (2, 'For Ada', 'ada'), (3, 'For Bo', 'bo');
grant select on note to anon, authenticated, service_role;
alter table note enable row level security;
create policy readers on note
    for select using (reader in ('everybody', current_setting('request.jwt.claims', true)::json ->> 'sub'));
create schema webhooks authorization authenticator;
create function dawdle() returns int language plpgsql as 'begin perform pg_sleep(0.6); return 1; end';
comment on schema public is '@graphql({"introspection": true, "inflect_names": true})';
"""
WEBHOOKS = {
    "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY,
    "DATAAPI_WEBHOOKS_ALLOW_ADDRESSES": "127.0.0.1",
    "DATAAPI_WEBHOOKS_RETRY_WAITS": "3600, 3600, 3600, 3600",
}
"""Settings with long retry delays, so that no retry disturbs a test of a failed attempt."""
DOCUMENTS = {
    "Titles": "query Titles { noteCollection { edges { node { title } } } }",
    "Heartbeat": "{ heartbeat }",
}


@pytest.fixture(scope="package")
def console_database(server: Server) -> Database:
    return server.create_database(SCHEMA)


@pytest.fixture(scope="package")
def daemon(console_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a daemon with public and private notes, and webhooks that may send requests to this machine."""
    folder, documents = tmp_path_factory.mktemp("console"), tmp_path_factory.mktemp("documents")
    for name, text in DOCUMENTS.items():
        (documents / f"{name}.graphql").write_text(text)
    project = {"graphql-documents": str(documents)}
    with Daemon(folder, console_database.uri, project=project, environ=WEBHOOKS) as made:
        made.wait_ready()
        yield made
        made.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Yield a headless Chromium."""
    with chromium() as launched:
        yield launched


@pytest.fixture
def refused() -> set[str]:
    """Return the path prefixes of requests that may fail. Tests can add prefixes.

    The browser logs each failed request. Failures of the management API are always expected.
    """
    return {"/v2/"}


@pytest.fixture
def page(browser: Browser, daemon: Daemon, refused: set[str]) -> Iterator[Page]:
    """Yield a new tab. The test fails if the page logs an error or sends requests to another origin."""
    with checked_page(browser, f"http://127.0.0.1:{daemon.port}", refused) as opened:
        yield opened
