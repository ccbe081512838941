"""One daemon and one browser for the console's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.chromium import chromium
from support.daemon import PATIENCE, Daemon
from support.webhooks import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request
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
"""An attempt that fails is not repeated while a test looks at it, however slow the machine is."""
DOCUMENTS = {
    "Titles": "query Titles { noteCollection { edges { node { title } } } }",
    "Heartbeat": "{ heartbeat }",
}


@pytest.fixture(scope="package")
def console_database(server: Server) -> Database:
    """Give the database that the console shows."""
    return server.create_database(SCHEMA)


@pytest.fixture(scope="package")
def daemon(console_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Give a daemon whose notes are for all, or for one reader, and whose webhooks reach this machine."""
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
    """Give Debian's Chromium, without a window."""
    with chromium() as launched:
        yield launched


@pytest.fixture
def refused() -> set[str]:
    """Give the beginnings of the paths that may refuse requests of the page, which a test adds to.

    The browser logs each refusal, though the page shows it.  Those of the management API are always expected.
    """
    return {"/v2/"}


@pytest.fixture
def page(browser: Browser, daemon: Daemon, refused: set[str]) -> Iterator[Page]:
    """Give a tab of its own, which fails the test that logs an error there, or asks another origin."""
    origin = f"http://127.0.0.1:{daemon.port}"
    context = browser.new_context(base_url=origin, color_scheme="light")
    context.set_default_timeout(PATIENCE * 1000)
    opened = context.new_page()
    problems: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        path = message.location["url"].removeprefix(origin)
        expected = "a status of 4" in message.text and path.startswith(tuple(refused))
        if message.type == "error" and not expected:
            problems.append(f"{path}: {message.text}")

    def sent(request: Request) -> None:
        if not request.url.startswith((f"{origin}/", "data:")):
            problems.append(f"asked {request.url}")

    opened.on("console", heard)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", sent)
    yield opened
    context.close()
    assert problems == []
