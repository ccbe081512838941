"""The operator's commands for webhooks: effects, output and exit codes."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg2
import pytest
from dataapi.cli.main import run
from dataapi.service.inspection import inspect
from dataapi.settings import Project
from dataapi.webhooks.model import NewEvent, Permission, Scope
from dataapi.webhooks.plugins import installed_catalogue
from dataapi.webhooks.secrets import Cipher, new_key
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.enqueue import CannotPublish
from dataapi.webhooks.store.migrations import bundled_migrations
from support.webhooks import (
    ACME,
    KEY,
    MEMBER,
    PROJECT,
    REF,
    SECRET,
    add_endpoint,
    allow_migrations,
    claim,
    migrated,
    publish,
    success,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dataapi.database.pool import Pool
    from support.postgres import Database

TRANSFERRED = "v1.project.transferred"
JOINED = json.dumps(MEMBER)
MALFORMED_COMMANDS = [
    ("organization",),
    ("organization", "create", "not a slug"),
    ("project", "create", "short", "--organization", "acme"),
    ("project", "transfer", REF),
    ("project", "transfer", "short", "--organization", "acme"),
    ("token", "create", "--organization", "acme", "--permission", "webhooks:own"),
    ("token", "create", "--organization", "acme", "--expires", "0"),
    ("token", "create", "--organization", "acme", "--operator"),
    ("token", "revoke", "1"),
    ("webhooks", "types", "add", "orders"),
    ("webhooks", "types", "add", f"v1.shop.{'o' * 50}"),
    ("webhooks", "types", "remove"),
    ("event", "publish", "v1.a.b", "--organization", "acme", "--payload", "[]"),
    ("event", "publish", "v1.a.b", "--organization", "acme", "--payload", "{"),
]


class Operator:
    """Runs commands on a database.

    :ivar notes: notes that the last command printed to stderr.
    """

    def __init__(self, database: Database) -> None:
        self.notes = ""
        self._environ = {
            "DATAAPI_PROJECT_DB_URI": "postgresql://nouser@127.0.0.1:1/none",
            "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
            "DATAAPI_WEBHOOKS_DB_URI": database.uri,
            "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY,
        }

    def configure(self, key: str, value: str) -> None:
        self._environ[key] = value

    def clear(self, *keys: str) -> None:
        for key in keys:
            del self._environ[key]

    def keys(self, *keys: str) -> None:
        self._environ["DATAAPI_WEBHOOKS_ENCRYPTION_KEY"] = "\n".join(keys)

    def output_of(self, *arguments: str) -> str:
        code, output, self.notes = self.run_command(*arguments)
        assert (code, self.notes[:6]) in ((0, ""), (0, "note: "))
        return output

    def error_of(self, *arguments: str, status: int = os.EX_DATAERR) -> str:
        code, output, errors = self.run_command(*arguments)
        assert (code, output) == (status, "")
        assert len(errors.splitlines()) == 1
        return errors

    def run_command(self, *arguments: str) -> tuple[int, str, str]:
        output, errors = io.StringIO(), io.StringIO()
        code = run(arguments, self._environ, output, errors)
        return code, output.getvalue(), errors.getvalue()


@pytest.fixture
def operator(database: Database, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Return an operator of this test's database, in a directory without a configuration file."""
    monkeypatch.chdir(str(tmp_path))
    return Operator(database)


@pytest.mark.empty_database
def test_migrate_prints_applied_migrations(database: Database, operator: Operator) -> None:
    allow_migrations(database)
    applied = operator.output_of("migrate").splitlines()
    assert applied == [f"applied migration {one.number} ({one.name})" for one in bundled_migrations()]
    assert operator.output_of("migrate") == "the schema webhooks is up to date\n"


@pytest.mark.empty_database
def test_missing_privilege_to_migrate_shows_the_statement_to_run(operator: Operator) -> None:
    assert "create schema webhooks authorization authenticator" in operator.error_of(
        "organization", "list", status=os.EX_NOPERM
    )


@pytest.mark.empty_database
def test_webhooks_are_off_without_their_section(database: Database, operator: Operator) -> None:
    database.execute(f"grant create on database {database.name} to authenticator")
    operator.clear("DATAAPI_WEBHOOKS_DB_URI", "DATAAPI_WEBHOOKS_ENCRYPTION_KEY")
    operator.configure("DATAAPI_PROJECT_DB_URI", database.uri)
    expected = "webhooks are off: the configuration has no section [webhooks]\n"
    for command in (("organization", "create", "acme"), ("migrate",)):
        assert operator.error_of(*command, status=os.EX_CONFIG) == expected
    assert database.execute("select to_regnamespace('webhooks')") == [(None,)]


def test_unreachable_database_is_reported_in_one_line(operator: Operator) -> None:
    operator._environ["DATAAPI_WEBHOOKS_DB_URI"] = "postgresql://nouser@127.0.0.1:1/none"
    error = operator.error_of("organization", "list", status=os.EX_UNAVAILABLE)
    assert error.startswith("webhooks: the database cannot be used: ")


@pytest.mark.empty_database
def test_organizations_are_created_allowed_and_listed(database: Database, operator: Operator) -> None:
    allow_migrations(database)
    assert operator.output_of("organization", "create", "acme") == ""
    assert operator.output_of("organization", "create", "beta", "--early-access") == ""
    assert operator.output_of("organization", "list") == "acme\t-\nbeta\tearly-access\n"
    operator.output_of("organization", "allow", "acme")
    operator.output_of("organization", "disallow", "beta")
    assert operator.output_of("organization", "list") == "acme\tearly-access\nbeta\t-\n"
    assert operator.error_of("organization", "create", "acme").endswith("organization acme already exists\n")
    error = operator.error_of("organization", "create", "acme", "--early-access")
    assert "to add it to the early access allowlist: dataapi organization allow acme" in error
    for action in ("allow", "disallow"):
        assert "organization gamma does not exist" in operator.error_of("organization", action, "gamma")


@pytest.mark.empty_database
def test_projects_belong_to_an_organization(database: Database, operator: Operator) -> None:
    allow_migrations(database)
    operator.output_of("organization", "create", "acme")
    assert operator.output_of("project", "create", REF, "--organization", "acme") == ""
    assert operator.output_of("project", "list") == f"{REF}\tacme\n"
    assert f"project {REF} already exists" in operator.error_of(
        "project", "create", REF, "--organization", "acme"
    )
    assert "organization beta does not exist" in operator.error_of(
        "project", "create", REF, "--organization", "beta"
    )


@pytest.mark.empty_database
async def test_operator_token_has_no_organization(database: Database, pool: Pool, operator: Operator) -> None:
    allow_migrations(database)
    secret = operator.output_of("token", "create", "--operator").strip()
    directory = make_store(pool, Cipher([KEY]), 14).directory
    access = await directory.access(secret)
    assert access is not None
    assert access.token.operator
    assert operator.output_of("token", "list") == f"{access.token.id}\t-\toperator\t-\tusable\n"
    refused = operator.error_of(
        "token", "create", "--operator", "--permission", "webhooks:write", status=os.EX_USAGE
    )
    assert "--permission cannot be used with --operator" in refused
    operator.output_of("token", "revoke", str(access.token.id))
    assert await directory.access(secret) is None


@pytest.mark.empty_database
async def test_configured_organization_is_the_default(
    database: Database, pool: Pool, operator: Operator
) -> None:
    allow_migrations(database)
    operator.configure("DATAAPI_PROJECT_REF", REF)
    operator.configure("DATAAPI_PROJECT_ORGANIZATION", "acme")
    operator.output_of("organization", "create", "acme", "--early-access")
    operator.output_of("project", "create", REF)
    assert operator.output_of("project", "list") == f"{REF}\tacme\n"
    operator.output_of("token", "create")
    assert "\tacme\t" in operator.output_of("token", "list")
    store = make_store(pool, Cipher([KEY]), 14)
    await add_endpoint(store)
    operator.output_of("event", "publish", "v1.project.restarted", "--project", REF)
    [work] = await claim(store)
    assert json.loads(work.body or b"")["payload"]["organization_slug"] == "acme"
    assert (
        operator.error_of("project", "create", "z" * 20, status=os.EX_USAGE)
        == f"webhooks: --organization is required: the configuration has no project {'z' * 20}\n"
    )


@pytest.mark.empty_database
def test_organization_is_required_if_several_are_configured(
    database: Database, operator: Operator, tmp_path: Path
) -> None:
    allow_migrations(database)
    other = "z" * 20
    config = tmp_path / "several.ini"
    config.write_text(
        "".join(
            f"[project:{ref}]\norganization = {organization}\nhosts = {organization}.example\n"
            "db-uri = postgresql://nouser@127.0.0.1:1/none\nrequire-api-key = no\n"
            for ref, organization in ((REF, "acme"), (other, "globex"))
        )
    )
    operator.clear("DATAAPI_PROJECT_DB_URI", "DATAAPI_PROJECT_REQUIRE_API_KEY")
    named = ("--config", str(config))
    operator.output_of("organization", "create", "globex", *named)
    operator.output_of("project", "create", other, *named)
    assert operator.output_of("project", "list", *named) == f"{other}\tglobex\n"
    assert (
        operator.error_of("token", "create", *named, status=os.EX_USAGE)
        == "webhooks: --organization is required: the configuration names several organizations\n"
    )


async def test_transfer_moves_a_project_with_its_endpoints_and_history(
    database: Database, pool: Pool, operator: Operator
) -> None:
    store = await migrated(database, pool)
    operator.output_of("organization", "create", "globex", "--early-access")
    there = Scope("globex", REF)
    own = await add_endpoint(store, PROJECT, custom_headers={"x-key": "1"})
    for scope in (ACME, Scope("globex")):
        await add_endpoint(store, scope, event_types=(TRANSFERRED,))
    await publish(store)
    [before] = await claim(store)
    await publish(store)
    assert operator.output_of("project", "transfer", REF, "--organization", "globex") == ""
    assert operator.output_of("project", "list") == f"{REF}\tglobex\n"
    assert await store.endpoints.page(PROJECT, 10, 0) == ((), 0)
    assert await store.endpoints.read(there, own.id) == replace(own, scope=there)
    assert await store.queue.finish([success(before)])
    assert await store.history.read(there, before.claim.delivery_id) is not None
    assert await store.history.read(PROJECT, before.claim.delivery_id) is None
    payloads = [
        (work.endpoint_id == own.id, json.loads(work.body or b"")["payload"]) for work in await claim(store)
    ]
    moved = [(is_own, one["organization_slug"]) for is_own, one in payloads if "target" in one]
    assert sorted(moved) == [(False, "acme"), (False, "globex"), (True, "acme"), (True, "globex")]
    assert [one["organization_slug"] for is_own, one in payloads if "target" not in one] == ["acme"]
    for _, one in payloads:
        if "target" in one:
            assert (one["source"], one["target"]) == (
                {"organization_slug": "acme"},
                {"organization_slug": "globex"},
            )
            assert installed_catalogue().issues(TRANSFERRED, one) == ()
    await publish(store, there)
    with pytest.raises(CannotPublish):
        await publish(store)
    assert [work.endpoint_id for work in await claim(store)] == [own.id]


async def test_rejected_transfer_publishes_nothing(
    database: Database, pool: Pool, operator: Operator
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for project, organization, error in (
        ("z" * 20, "acme", f"project {'z' * 20} does not exist"),
        (REF, "missing", "organization missing does not exist"),
        (REF, "acme", f"project {REF} already belongs to organization acme"),
    ):
        assert error in operator.error_of("project", "transfer", project, "--organization", organization)
    assert database.execute("select count(*) from webhooks.event") == [(0,)]
    assert operator.output_of("project", "list") == f"{REF}\tacme\n"


async def test_transfer_is_published_only_for_organizations_on_the_allowlist(
    database: Database, pool: Pool, operator: Operator
) -> None:
    store = await migrated(database, pool)
    own = await add_endpoint(store, PROJECT)
    for organization in ("globex", "initech"):
        operator.output_of("organization", "create", organization)
        operator.output_of("project", "transfer", REF, "--organization", organization)
    payloads = [json.loads(work.body or b"")["payload"] for work in await claim(store)]
    assert [one["organization_slug"] for one in payloads] == ["acme"]
    assert await store.endpoints.read(Scope("initech", REF), own.id) is not None


async def test_old_key_can_be_removed_after_resealing(
    database: Database, pool: Pool, operator: Operator
) -> None:
    store = await migrated(database, pool)
    endpoints = [await add_endpoint(store, custom_headers={"x-key": str(number)}) for number in range(3)]
    await publish(store)
    newest = new_key()
    operator.keys(newest, KEY)
    assert operator.output_of("secrets", "reseal") == "endpoints resealed: 3\n"
    assert operator.output_of("secrets", "reseal") == "endpoints resealed: 0\n"
    with_new_key = make_store(pool, Cipher([newest]), 14)
    assert [await with_new_key.endpoints.read(ACME, one.id) for one in endpoints] == endpoints
    work = await claim(with_new_key)
    assert {(one.signing_secret, one.custom_headers["x-key"]) for one in work} == {
        (SECRET, str(number)) for number in range(3)
    }


async def test_resealing_reports_endpoints_that_no_key_decrypts(
    database: Database, pool: Pool, operator: Operator
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    lost = await add_endpoint(make_store(pool, Cipher([new_key()]), 14))
    operator.keys(new_key(), KEY)
    error = f"endpoints resealed: 1; cannot be decrypted with any encryption-key: 1 ({lost.id})"
    assert error in operator.error_of("secrets", "reseal", status=os.EX_CONFIG)
    operator.keys()
    assert "encryption-key is not configured" in operator.error_of("secrets", "reseal", status=os.EX_CONFIG)


async def test_token_create_prints_only_the_token(database: Database, pool: Pool, operator: Operator) -> None:
    store = await migrated(database, pool)
    plain = operator.output_of("token", "create", "--organization", "acme").strip()
    access = await store.directory.access(plain)
    assert access is not None
    token = access.token
    assert (token.organization, token.expires_at) == ("acme", None)
    assert token.permissions == {Permission.READ, Permission.WRITE}
    assert operator.notes == (
        "note: the token has webhooks:read and webhooks:write; --permission grants others: events:publish\n"
    )
    publisher = operator.output_of(
        "token", "create", "--organization", "acme", "--permission", "events:publish", "--expires", "30"
    ).strip()
    others = await store.directory.access(publisher)
    assert others is not None
    other = others.token
    assert other.permissions == {Permission.PUBLISH}
    assert operator.notes == ""
    assert other.expires_at is not None
    assert (other.expires_at - other.created_at).days in (29, 30)
    dump = str(database.execute("select t::text from webhooks.token t"))
    assert plain not in dump
    assert plain.removeprefix("dapat_") not in dump
    assert "organization beta does not exist" in operator.error_of(
        "token", "create", "--organization", "beta"
    )


async def test_tokens_can_be_revoked_and_expire(database: Database, pool: Pool, operator: Operator) -> None:
    store = await migrated(database, pool)
    create = ("token", "create", "--organization", "acme", "--expires", "1")
    secrets = [operator.output_of(*create).strip() for _ in range(3)]
    first, second, third = await store.directory.tokens()
    operator.output_of("token", "revoke", str(first.id))
    database.execute(f"update webhooks.token set expires_at = now() where id = '{second.id}'")
    identified = [await store.directory.access(secret) for secret in secrets]
    assert [one and one.token.id for one in identified] == [None, None, third.id]
    assert await store.directory.access("dapat_unknown\udfff") is None
    lines = [line.split("\t") for line in operator.output_of("token", "list").splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [
        (str(first.id), "revoked"),
        (str(second.id), "expired"),
        (str(third.id), "usable"),
    ]
    assert lines[2][1:3] == ["acme", "webhooks:read,webhooks:write"]
    unknown = "01a1fe7d-2779-768f-9fe6-11d12301e463"
    assert f"token {unknown} does not exist" in operator.error_of("token", "revoke", unknown)


@pytest.mark.parametrize("style", ["German, DMY", "SQL, DMY", "Postgres, MDY"])
async def test_commands_work_under_any_date_style(
    database: Database, pool: Pool, operator: Operator, style: str
) -> None:
    store = await migrated(database, pool)
    database.execute(f"alter database {database.name} set datestyle = '{style}'")
    secret = operator.output_of("token", "create", "--organization", "acme", "--expires", "30").strip()
    access = await store.directory.access(secret)
    assert access is not None
    assert access.token.expires_at is not None
    expiry = f"{access.token.expires_at:%Y-%m-%d}"
    permissions = "webhooks:read,webhooks:write"
    assert (
        operator.output_of("token", "list") == f"{access.token.id}\tacme\t{permissions}\t{expiry}\tusable\n"
    )
    operator.output_of("token", "revoke", str(access.token.id))
    assert operator.output_of("token", "list").endswith("\trevoked\n")


async def test_event_publish_prints_the_event_id(database: Database, pool: Pool, operator: Operator) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    call = ("event", "publish", "--organization", "acme")
    first = operator.output_of(
        *call, "v1.project.paused", "--project", REF, "--payload", '{"reason": "other"}'
    )
    second = operator.output_of(
        *call, "v1.organization.member.added", "--payload", f'{{"member": {JOINED}, "price": 1.10}}'
    )
    assert UUID(first.strip()).version == 7
    assert first != second
    bodies = [work.body or b"" for work in sorted(await claim(store), key=lambda work: work.event_id)]
    assert [json.loads(body)["payload"] for body in bodies] == [
        {"organization_slug": "acme", "project_ref": REF, "actor": None, "reason": "other"},
        {"organization_slug": "acme", "project_ref": None, "actor": None, "member": MEMBER, "price": 1.1},
    ]
    assert b'"price": 1.10' in bodies[1]


async def test_event_publish_accepts_an_idempotency_key(
    database: Database, pool: Pool, operator: Operator
) -> None:
    """Idempotency keys are shared by the command line, HTTP and SQL."""
    store = await migrated(database, pool)
    await add_endpoint(store)
    call = ("event", "publish", "--organization", "acme", "v1.organization.member.added", "--payload",
            f'{{"member": {JOINED}}}', "--idempotency-key")  # fmt: skip
    first = operator.output_of(*call, "deployed 7")
    assert operator.output_of(*call, "deployed 7") == first
    assert operator.output_of(*call, "deployed 8") != first
    again = await store.publisher.publish(NewEvent("v1.organization.member.added", ACME, {}, "deployed 7"))
    assert str(again) == first.strip()
    assert len(await claim(store)) == 2
    for key in ("", "k" * 256):
        assert "an idempotency key of 1 to 255 characters" in operator.error_of(*call, key)


async def test_event_publish_explains_rejections(database: Database, pool: Pool, operator: Operator) -> None:
    store = await migrated(database, pool)
    await store.directory.create_organization("denied")
    joined, restored = "v1.organization.member.added", "v1.project.restored"
    member = ("--payload", f'{{"member": {JOINED}}}')
    for organization, event_type, more, error in (
        ("missing", joined, member, "there is no organization missing"),
        ("acme", restored, ("--project", "z" * 20), "there is no project"),
        ("denied", joined, member, "organization denied is not on the early access allowlist"),
        ("denied", restored, ("--project", REF), "does not belong to organization denied"),
        ("acme", "v1.project.unheard", (), "no catalogue contains the type v1.project.unheard"),
        ("acme", restored, (), "--project is required for events of type v1.project.restored"),
        ("acme", "v1.project.paused", ("--project", REF), "v1.project.paused: the payload: 'reason' is"),
        (
            "acme",
            joined,
            ("--payload", f'{{"member": {JOINED}, "is_test": false}}'),
            "the payload of an event must not contain is_test",
        ),
    ):
        call = ("event", "publish", event_type, "--organization", organization, *more)
        status = os.EX_USAGE if "is required" in error else os.EX_DATAERR
        assert error in operator.error_of(*call, status=status)


@pytest.mark.parametrize("arguments", MALFORMED_COMMANDS)
def test_malformed_command_is_a_usage_error(
    operator: Operator, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        operator.run_command(*arguments)
    assert exited.value.code == os.EX_USAGE
    assert "usage: dataapi" in capsys.readouterr().err


ORDER = "v1.shop.order"


async def test_watch_and_unwatch_install_and_remove_triggers(
    database: Database, pool: Pool, operator: Operator
) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    database.execute("create table item (id int, size int)")
    operator.configure("DATAAPI_WEBHOOKS_ROW_CHANGE_TYPES", ORDER)
    watch = ("webhooks", "watch", "item", ORDER, "--columns", "id, size", "--when", "new.id > 1",
             "--operations", "insert,update", "--project", REF)  # fmt: skip
    assert "only the owner of table" in operator.error_of(*watch, status=os.EX_NOPERM)
    assert operator.output_of(*watch, "--owner-uri", database.admin_uri) == ""
    database.execute("insert into item values (1, 1), (2, 2)")
    [work] = await claim(store)
    payload = json.loads(work.body or b"")["payload"]
    assert (work.endpoint_id, payload["project_ref"], payload["new"]) == (
        endpoint.id,
        REF,
        {"id": 2, "size": 2},
    )
    installed_catalogue([ORDER]).check(ORDER, payload)
    assert operator.output_of("webhooks", "unwatch", "item", "--owner-uri", database.admin_uri) == ""
    database.execute("insert into item values (3, 3)")
    assert await claim(store) == ()


def test_watch_prints_its_sql(operator: Operator) -> None:
    operator.configure("DATAAPI_PROJECT_ORGANIZATION", "acme")
    assert operator.output_of("webhooks", "watch", "it's", ORDER, "--columns", "a,b", "--print") == (
        "select webhooks.watch('it''s', 'v1.shop.order', \"columns\" => array['a', 'b'], "
        "\"organization\" => 'acme');\n"
    )
    printed = operator.output_of(
        "webhooks", "watch", "t", ORDER, "--organization-column", "tenant", "--print"
    )
    assert "\"organization_column\" => 'tenant');" in printed
    assert operator.output_of("webhooks", "unwatch", "t", "--print") == "select webhooks.unwatch('t');\n"
    assert operator.output_of("webhooks", "unwatch", "t", ORDER, "--print") == (
        "select webhooks.unwatch('t', 'v1.shop.order');\n"
    )


async def test_watch_rejects_undeclared_types(database: Database, pool: Pool, operator: Operator) -> None:
    await migrated(database, pool)
    database.execute("create table item (id int); alter table item owner to authenticator")
    error = operator.error_of("webhooks", "watch", "item", ORDER, "--organization", "acme")
    assert "no event catalogue has the type v1.shop.order; Add it to row-change-types in [webhooks]" in error


async def test_row_change_types_can_be_added_and_removed(
    database: Database, pool: Pool, operator: Operator
) -> None:
    await migrated(database, pool)
    database.execute("create table item (id int)")
    as_owner = ("--owner-uri", database.admin_uri)
    watching = ("webhooks", "watch", "item", ORDER, "--organization", "acme", *as_owner)
    assert operator.output_of("webhooks", "types", "add", ORDER) == ""
    assert f"type {ORDER} already exists" in operator.error_of("webhooks", "types", "add", ORDER)
    assert "type v1.project.paused already exists" in operator.error_of(
        "webhooks", "types", "add", "v1.project.paused"
    )
    operator.output_of(*watching)
    assert operator.output_of("webhooks", "watches").endswith("\tok\n")
    store = make_store(pool, Cipher([KEY]), 14)
    await add_endpoint(store, event_types=(ORDER,))
    database.execute("insert into item values (1)")
    assert [work.event_type for work in await claim(store)] == [ORDER]
    # Another daemon starts with its own event types.
    await store.publisher.sync_event_types({}, ["v1.project.paused"])
    operator.output_of(*watching)
    assert operator.output_of("webhooks", "types", "list") == f"{ORDER}\n"
    refused = operator.error_of("webhooks", "types", "remove", ORDER)
    assert f"type {ORDER} is published by public.item: run dataapi webhooks unwatch first" in refused
    operator.output_of("webhooks", "unwatch", "item", *as_owner)
    operator.output_of("webhooks", "types", "remove", ORDER)
    assert operator.output_of("webhooks", "types", "list") == ""
    assert f"type {ORDER} was not added" in operator.error_of("webhooks", "types", "remove", ORDER)
    assert "no event catalogue has the type" in operator.error_of(*watching)


async def test_watches_are_listed_with_their_state(
    database: Database, pool: Pool, operator: Operator
) -> None:
    await migrated(database, pool)
    owner = f"item_{database.name}"
    database.execute(f"""
        create role {owner};
        grant create, usage on schema public to {owner};
        grant usage on schema webhooks to {owner};
        grant execute on function webhooks.publish_row_changes to {owner};
        create table item (id int, size int, tenant text);
        create table note (id int);
        alter table item owner to {owner};""")
    operator.configure("DATAAPI_WEBHOOKS_ROW_CHANGE_TYPES", ORDER)
    as_owner = ("--owner-uri", database.admin_uri)
    condition = ("--columns", "id", "--when", "new.size > 1", "--operations", "insert,update")
    operator.output_of(
        "webhooks", "watch", "item", ORDER, *condition, "--organization-column", "tenant", *as_owner
    )
    operator.output_of("webhooks", "watch", "note", ORDER, "--organization", "acme", "--always", *as_owner)

    def states() -> list[str]:
        return [line.split("\t")[-1] for line in operator.output_of("webhooks", "watches").splitlines()]

    def failures() -> list[str]:
        findings = inspect(Project(REF, "acme", database.uri, db_anon_role="anon"))
        return [finding.text for finding in findings if "because of the watch" in finding.text]

    try:
        assert operator.output_of("webhooks", "watches") == (
            f"public.item\t{ORDER}\tinsert,update\tid\tnew.size > 1\torganization-column=tenant\tok\n"
            f"public.note\t{ORDER}\tinsert,update,delete\t-\t-\torganization=acme\tok\n"
        )
        assert failures() == []
        [(needed,)] = database.execute(
            """select obj_description(tgfoid)::jsonb -> 'needs' from pg_trigger
            where tgrelid = 'item'::regclass and not tgisinternal limit 1"""
        )
        assert sorted(needed) == ["id", "size", "tenant"]
        database.execute("alter table item rename size to area; alter table note disable trigger user")
        missing = "columns were renamed or dropped: size; watch the table again"
        assert states() == [f"writes fail: {missing}", "disabled by alter table"]
        assert failures() == [f"writes to public.item fail because of the watch {ORDER}: {missing}"]
        with pytest.raises(psycopg2.errors.UndefinedColumn):
            database.execute("insert into item values (1, 2)")
        database.execute("alter table item rename area to size; alter table note enable trigger user")
        database.execute(f"revoke execute on function webhooks.publish_row_changes from {owner}")
        denied = f"role {owner} may not execute webhooks.publish_row_changes"
        assert failures() == [f"writes to public.item fail because of the watch {ORDER}: {denied}"]
        database.execute(f"grant execute on function webhooks.publish_row_changes to {owner}")
        database.execute("alter table item owner to postgres; create table child () inherits (item)")
        operator.configure("DATAAPI_WEBHOOKS_ROW_CHANGE_TYPES", "v1.shop.other")
        children = "also publishes rows of child tables that were added later; watch the table again"
        assert states() == [children, "no event catalogue has the type: endpoints cannot subscribe to it"]
        database.execute("drop schema webhooks cascade")
        assert failures() == []
    finally:
        database.execute(f"drop owned by {owner} cascade; drop role {owner}")


async def test_project_is_checked_if_its_role_cannot_use_webhooks(database: Database, pool: Pool) -> None:
    await migrated(database, pool)
    stranger = f"stranger_{database.name}"
    database.execute(f"create role {stranger} login")
    try:
        uri = database.uri.replace("authenticator", stranger)
        findings = [finding.text for finding in inspect(Project(REF, "acme", uri, db_anon_role="anon"))]
        assert any("is not a member of" in text for text in findings), findings
    finally:
        database.execute(f"drop role {stranger}")
