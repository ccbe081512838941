"""The demo's data, keys and addresses."""

from __future__ import annotations

import json
import re
import shutil
import stat
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jwt
import psycopg2
import pytest
import pytest_twisted
from dataapi.auth.authenticator import Authenticator
from dataapi.database.embedded import EmbeddedServerError
from dataapi.database.script import run_script
from dataapi.http.messages import Request
from dataapi.service import demo
from dataapi.service.inspection import inspect
from dataapi.settings import Settings
from dataapi.webhooks.model import Permission
from dataapi.webhooks.store.directory import digest
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.own_sql

SERVICE = Settings(projects=(), listen=("tcp:9999",), workers=2)


@pytest.fixture(scope="module")
def prepared() -> Iterator[demo.PreparedDemo]:
    running: demo.PreparedDemo = pytest_twisted.blockon(
        Deferred.fromCoroutine(demo.prepare_demo(None, SERVICE))
    )
    yield running
    pytest_twisted.blockon(Deferred.fromCoroutine(running.server.stop()))


async def titles(prepared: demo.PreparedDemo, role: str, account: int | None = None) -> set[str]:
    """Return the titles of posts that a role can read, optionally signed in as an account."""
    claims = json.dumps({"role": role} if account is None else {"role": role, "sub": str(account)})
    message = f"select set_config('request.jwt.claims', '{claims}', false); set role {role};"
    rows = await run_script(prepared.settings.projects[0].db_uri, f"{message} select title from blog_post")
    return {title for (title,) in rows}


async def test_policies_restrict_which_posts_a_role_reads(prepared: demo.PreparedDemo) -> None:
    all_titles = await titles(prepared, "service_role")
    released = await titles(prepared, "anon")
    assert "On indexes" in all_titles - released
    assert await titles(prepared, "authenticated", 1) == released | {"On indexes"}
    assert await titles(prepared, "authenticated", 3) == released | {"The frog"}


@pytest.mark.parametrize(
    ("role", "account", "statement", "error"),
    [
        ("anon", 0, "insert into blog (owner_id, name) values (1, 'x')", "permission denied for table blog"),
        ("anon", 0, "select email from account", "permission denied for table account"),
        (
            "authenticated",
            2,
            "insert into blog (owner_id, name) values (1, 'x')",
            "row-level security policy",
        ),
        ("authenticated", 1, "insert into blog (owner_id, name) values (1, 'x')", None),
        ("authenticated", 1, "update blog_post set claps = 1 where title = 'On indexes' returning 1", None),
    ],
)
def test_roles_can_only_write_their_own_rows(
    prepared: demo.PreparedDemo, role: str, account: int, statement: str, error: str | None
) -> None:
    connection = psycopg2.connect(prepared.settings.projects[0].db_uri)
    try:
        with connection.cursor() as cursor:
            cursor.execute("select set_config('request.jwt.claims', %s, true)", (f'{{"sub": "{account}"}}',))
            cursor.execute(f"set local role {role}")
            if error is None:
                cursor.execute(statement)
                assert cursor.rowcount == 1
            else:
                with pytest.raises(psycopg2.Error, match=error):
                    cursor.execute(statement)
    finally:
        connection.close()


def test_catalog_of_the_demo_has_no_problems(prepared: demo.PreparedDemo) -> None:
    assert inspect(prepared.settings.projects[0]) == []


def test_printed_keys_are_accepted_with_their_roles(prepared: demo.PreparedDemo) -> None:
    authenticator = Authenticator(prepared.settings.projects[0], time.time)

    def role(**headers: str) -> str:
        return authenticator.caller_of(Request("id", "GET", "/rest/v1/", "", headers, b"")).role

    text = prepared.banner
    [publishable] = set(re.findall(r"sb_publishable_[\w-]+", text))
    [secret] = set(re.findall(r"sb_secret_[\w-]+", text))
    anon, service, user = re.findall(r"ey[\w-]+\.[\w-]+\.[\w-]+", text)
    assert [role(apikey=key) for key in (publishable, anon)] == ["anon", "anon"]
    assert [role(apikey=key) for key in (secret, service)] == ["service_role", "service_role"]
    assert role(apikey=publishable, authorization=f"Bearer {user}") == "authenticated"
    assert jwt.decode(user, options={"verify_signature": False})["sub"] == "1"


def test_banner_shows_the_listen_addresses(prepared: demo.PreparedDemo) -> None:
    assert replace(prepared.settings, projects=(), webhooks=None) == SERVICE
    assert "curl -s http://127.0.0.1:9999/graphql/v1" in prepared.banner
    assert "curl -s 'http://127.0.0.1:9999/rest/v1/leaderboard?" in prepared.banner
    assert demo.DEMO_QUERY in prepared.banner


async def test_printed_token_is_valid_for_webhooks(prepared: demo.PreparedDemo) -> None:
    [token] = set(re.findall(r"dapat_[\w-]+", prepared.banner))
    rows = await run_script(
        prepared.settings.projects[0].db_uri,
        "select encode(hash, 'hex'), permissions, ref, early_access"
        " from webhooks.token join webhooks.organization on slug = organization_slug"
        " join webhooks.project using (organization_slug)",
    )
    assert rows == [(digest(token).hex(), sorted(Permission), demo.DEMO_REF, True)]
    assert prepared.settings.webhooks is not None
    assert prepared.settings.webhooks.encryption_key
    assert "127.0.0.1" in prepared.settings.webhooks.allow_addresses


async def test_schema_changes_in_the_demo_notify_the_daemon(prepared: demo.PreparedDemo) -> None:
    listener = psycopg2.connect(prepared.settings.projects[0].db_uri)
    try:
        listener.autocommit = True
        with listener.cursor() as cursor:
            cursor.execute("listen dataapi")
        await run_script(prepared.server.uri(), "create table extra (); drop table extra")
        with listener.cursor() as cursor:
            cursor.execute("select 1")
        assert [notice.payload for notice in listener.notifies][:1] == ["reload schema"]
    finally:
        listener.close()


async def test_data_and_keys_survive_in_a_named_directory() -> None:
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    try:
        keys = []
        for blogs in (4, 5):
            prepared = await demo.prepare_demo(directory, SERVICE)
            uri = prepared.server.uri()
            await run_script(
                uri, "insert into blog (owner_id, name) values (1, 'x')" if blogs == 4 else "select 1"
            )
            if blogs == 5:
                assert await run_script(uri, "select count(*) from blog") == [(5,)]
            project = prepared.settings.projects[0]
            token = re.findall(r"dapat_[\w-]+", prepared.banner)
            section = prepared.settings.webhooks
            keys.append((project.jwt_secret, project.publishable_keys, project.secret_keys, section, token))
            await prepared.server.stop()
        assert keys[0] == keys[1]
        assert stat.S_IMODE((directory / "demo-keys.json").stat().st_mode) == 0o600

        (directory / "demo-keys.json").write_text("{}")
        with pytest.raises(EmbeddedServerError, match=r"demo-keys\.json does not contain the keys"):
            await demo.prepare_demo(directory, SERVICE)
    finally:
        shutil.rmtree(directory)
