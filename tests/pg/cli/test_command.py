"""The ``dataapi`` command: its output and exit codes."""

from __future__ import annotations

import io
import os
from importlib.resources import files
from typing import TYPE_CHECKING

import jwt
import pytest
from dataapi.catalog.watcher import missing_trigger_note
from dataapi.cli.main import run
from dataapi.webhooks.secrets import new_key

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Database

SECRET = "not-so-secret-but-long-enough-32"
UNREACHABLE = {"DATAAPI_PROJECT_DB_URI": "postgresql://nobody@127.0.0.1:1/none"}
KEYED = {
    **UNREACHABLE,
    "DATAAPI_PROJECT_JWT_SECRET": SECRET,
    "DATAAPI_PROJECT_DB_CHANNEL_ENABLED": "no",  # the tests' databases have no event triggers
}


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a directory without a configuration file."""
    monkeypatch.chdir(tmp_path)


def dataapi(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run the command and return its exit code, output and errors."""
    output, errors = io.StringIO(), io.StringIO()
    code = run(arguments, environ or {}, output, errors)
    return code, output.getvalue(), errors.getvalue()


def test_check_config_lists_every_error(tmp_path: Path) -> None:
    (tmp_path / "x.ini").write_text("[project]\ndb-pool = 0\ndb-uri = nonsense\n")
    code, output, errors = dataapi("check-config", "--config", "x.ini")
    assert (code, output) == (os.EX_CONFIG, "")
    assert [line.partition(":")[0] for line in errors.splitlines()] == ["x.ini"] * 3


def test_check_config_needs_the_database_unless_offline() -> None:
    code, output, errors = dataapi("check-config", environ=KEYED)
    assert (code, output) == (os.EX_UNAVAILABLE, "")
    assert errors.startswith("project abcdefghijklmnopqrst: the database cannot be checked: ")
    assert "Connection refused" in errors
    valid = "the environment: the configuration is valid; 1 project\n"
    assert dataapi("check-config", "--offline", environ=KEYED) == (0, valid, "")


def test_check_config_reports_invalid_directives(database: Database) -> None:
    database.execute("create table t (id int primary key); comment on table t is '@graphql({\"nam\": 1})'")
    database.execute("grant select on t to service_role")
    environ = {**KEYED, "DATAAPI_PROJECT_DB_URI": database.uri}
    code, output, errors = dataapi("check-config", environ=environ)
    assert (code, output) == (os.EX_CONFIG, "")
    [line] = errors.splitlines()
    assert line.startswith("project abcdefghijklmnopqrst: table public.t: ")

    database.execute("comment on table t is null")
    assert dataapi("check-config", environ=environ)[0] == 0


def test_check_config_notes_missing_event_triggers(database: Database) -> None:
    environ = {**KEYED, "DATAAPI_PROJECT_DB_URI": database.uri, "DATAAPI_PROJECT_DB_CHANNEL_ENABLED": "auto"}
    code, _, errors = dataapi("check-config", environ=environ)
    assert (code, errors) == (0, f"note: project abcdefghijklmnopqrst: {missing_trigger_note('pgrst')}\n")
    database.execute(files("dataapi.catalog").joinpath("event_trigger.sql").read_text(encoding="utf-8"))
    assert dataapi("check-config", environ=environ)[2] == ""


def test_check_config_warns_if_service_role_has_no_privileges(database: Database) -> None:
    database.execute("create table t (id int primary key); revoke all on t from service_role")
    environ = {**KEYED, "DATAAPI_PROJECT_DB_URI": database.uri}
    code, _, errors = dataapi("check-config", environ=environ)
    assert code == 0
    assert (
        "warning: project abcdefghijklmnopqrst: service_role has no privileges on tables of schema public"
        in errors
    )
    database.execute("grant select on t to service_role; grant usage on schema public to service_role")
    assert dataapi("check-config", environ=environ)[2] == ""


def test_check_config_notes_name_clashes(database: Database) -> None:
    database.execute(
        "create table account (id int primary key);"
        "create table blog ("
        "id int primary key, author int references account, editor int references account);"
        "grant select on blog to service_role"
    )
    code, output, errors = dataapi("check-config", environ={**KEYED, "DATAAPI_PROJECT_DB_URI": database.uri})
    assert (code, output) == (0, "the environment: the configuration is valid; 1 project\n")
    prefix = "note: project abcdefghijklmnopqrst: foreign key blog_author_fkey of table public.blog"
    assert errors.splitlines() == [
        f"{prefix}: the GraphQL field blogCollection of account belongs to foreign key blog_editor_fkey"
        " of table public.blog; this one is named blogCollectionByauthor",
        f"{prefix}: the GraphQL field account of blog belongs to foreign key blog_editor_fkey of table"
        " public.blog; this one is named accountByauthor",
    ]


def test_check_config_reports_missing_schemas_and_roles(database: Database) -> None:
    environ = {
        **KEYED,
        "DATAAPI_PROJECT_DB_URI": database.uri,
        "DATAAPI_PROJECT_DB_SCHEMAS": "public, api",
        "DATAAPI_PROJECT_DB_ANON_ROLE": "web_anon",
    }
    prefix = "project abcdefghijklmnopqrst"
    missing = "the schema is listed in db-schemas, but does not exist in the database; it is ignored"
    schema = f"{prefix}: schema api: {missing}"
    code, _, errors = dataapi("check-config", environ=environ)
    assert code == os.EX_CONFIG
    assert errors.splitlines() == [f"{prefix}: requests run as web_anon, but there is no such role", schema]
    database.execute("create role web_anon")
    try:
        assert dataapi("check-config", environ=environ)[2].splitlines() == [
            f"{prefix}: requests run as web_anon, but the login role of db-uri is not a member of that role",
            schema,
        ]
    finally:
        database.execute("drop role web_anon")


def test_check_config_notes_tables_without_a_primary_key(database: Database) -> None:
    database.execute(
        """
        create table keyed (id int primary key);
        create table note (body text);
        create table hidden (body text);
        create table part (day date) partition by range (day);
        create table part_1 partition of part for values from ('2026-01-01') to ('2027-01-01');
        create table declared (id int);
        comment on table declared is '@graphql({"primary_key_columns": ["id"]})';
        create view shown as select * from note;
        grant select on all tables in schema public to anon, service_role;
        revoke all on hidden from anon, authenticated, service_role;
        """
    )
    code, output, errors = dataapi("check-config", environ={**KEYED, "DATAAPI_PROJECT_DB_URI": database.uri})
    assert (code, output) == (0, "the environment: the configuration is valid; 1 project\n")
    assert errors.splitlines() == [
        f"note: project abcdefghijklmnopqrst: table public.{name} has no primary key, which GraphQL needs"
        for name in ("note", "part")
    ]


def test_check_config_warns_if_the_login_role_is_a_superuser(database: Database) -> None:
    code, _, errors = dataapi("check-config", environ={**KEYED, "DATAAPI_PROJECT_DB_URI": database.admin_uri})
    assert (code, errors) == (
        0,
        "warning: project abcdefghijklmnopqrst: db-uri logs in as postgres, a superuser, and bypasses all"
        " privilege checks; dataapi init creates a role for the daemon\n",
    )


def test_check_config_reports_missing_functions(database: Database) -> None:
    database.execute(
        "create schema hidden; create function hidden.check_request() returns void language sql as ''"
    )
    database.execute("create function hidden.root(name text) returns text language sql as 'select name'")
    environ = {
        **KEYED,
        "DATAAPI_PROJECT_DB_URI": database.uri,
        "DATAAPI_PROJECT_DB_PRE_REQUEST": "check_request",
        "DATAAPI_PROJECT_DB_ROOT_SPEC": "hidden.root",
    }
    code, _, errors = dataapi("check-config", environ=environ)
    assert code == os.EX_CONFIG
    before, root = errors.splitlines()
    assert "db-pre-request: no function check_request without arguments exists in public" in before
    assert "db-root-spec: no function hidden.root without arguments exists in hidden" in root

    database.execute("create function hidden.root() returns int language sql as 'select 1'")
    environ["DATAAPI_PROJECT_DB_PRE_REQUEST"] = "hidden.check_request"
    assert dataapi("check-config", environ=environ)[0] == 0


def test_anonymous_role_is_optional(database: Database) -> None:
    environ = {**KEYED, "DATAAPI_PROJECT_DB_URI": database.uri, "DATAAPI_PROJECT_DB_ANON_ROLE": ""}
    assert dataapi("check-config", environ=environ)[0] == 0
    keys = dataapi("keys", environ=environ)[1].splitlines()
    assert [line.split()[0] for line in keys if line.count(".") == 2] == ["service_role"]


def test_keys_are_signed_with_the_configured_secret() -> None:
    environ = {**KEYED, "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": new_key()}
    code, output, errors = dataapi("keys", environ=environ)
    assert (code, errors) == (0, "")
    keys = dict(line.split() for line in output.splitlines())
    assert {role: jwt.decode(key, SECRET, ["HS256"])["role"] for role, key in keys.items()} == {
        "anon": "anon",
        "service_role": "service_role",
    }


def test_keys_generates_a_missing_encryption_key() -> None:
    first, second = [dataapi("keys", environ=KEYED)[1].splitlines()[-1] for _ in range(2)]
    name, _, key = first.partition(" = ")
    assert name == "encryption-key"
    assert first != second
    assert (
        dataapi("check-config", "--offline", environ={**KEYED, "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": key})[0]
        == 0
    )


def test_commands_use_settings_stored_in_the_database(database: Database) -> None:
    setting = f"alter role authenticator in database {database.name} set pgrst"
    database.execute(
        f"create schema api; create table api.tide (id int primary key); grant usage on schema api to anon;"
        f"grant select on api.tide to anon; {setting}.jwt_secret = '{SECRET}'; {setting}.db_schemas = 'api'"
    )
    environ = {
        "DATAAPI_PROJECT_DB_URI": database.uri,
        "DATAAPI_PROJECT_DB_CONFIG": "yes",
        "DATAAPI_PROJECT_DB_CHANNEL_ENABLED": "no",
    }
    try:
        assert dataapi("check-config", environ=environ)[0] == 0
        keys = dict(line.split() for line in dataapi("keys", environ=environ)[1].splitlines()[:2])
        assert jwt.decode(keys["anon"], SECRET, ["HS256"])["role"] == "anon"
        assert "type tide implements Node" in dataapi("schema", "--role", "anon", environ=environ)[1]

        database.execute(f"{setting}.db_max_rows = 'many'")
        for command in (("check-config",), ("keys",), ("schema", "--role", "anon")):
            code, output, errors = dataapi(*command, environ=environ)
            assert (code, output) == (os.EX_CONFIG, "")
            assert "pgrst.db_max_rows = 'many'" in errors
    finally:
        database.execute(f"alter role authenticator in database {database.name} reset all")


def test_keys_of_several_projects_are_labelled() -> None:
    environ: dict[str, str] = {}
    for letter, key in (("A", "JWT_SECRET"), ("B", "PUBLISHABLE_KEYS")):
        prefix = f"DATAAPI_PROJECT_{letter * 20}"
        environ |= {
            f"{prefix}_DB_URI": "host=nowhere",
            f"{prefix}_HOSTS": f"{letter}.example.org",
            f"{prefix}_{key}": SECRET,
        }
    environ["DATAAPI_WEBHOOKS_ENCRYPTION_KEY"] = new_key()
    code, output, errors = dataapi("keys", environ=environ)
    assert code == os.EX_CONFIG
    first, anon, service, last = output.splitlines()
    assert (first, last) == (f"; project {'a' * 20}", f"; project {'b' * 20}")
    assert (anon.split()[0], service.split()[0]) == ("anon", "service_role")
    assert errors == f"project {'b' * 20}: no jwt-secret is configured\n"


def test_keys_generates_all_missing_settings(tmp_path: Path) -> None:
    (tmp_path / "x.ini").write_text("[project]\ndb-uri = postgresql://nobody@127.0.0.1:1/none\n")
    code, output, errors = dataapi("keys", "--config", "x.ini")
    assert (code, errors) == (0, "")
    with (tmp_path / "x.ini").open("a") as file:
        file.write(output)
    assert dataapi("check-config", "--offline", "--config", "x.ini")[0] == 0


def test_keys_generates_the_content_of_missing_files(tmp_path: Path) -> None:
    files = {key: tmp_path / key for key in ("jwt-secret", "encryption-key")}
    (tmp_path / "x.ini").write_text(
        "[project]\ndb-uri = postgresql://nobody@127.0.0.1:1/none\n"
        f"jwt-secret = @{files['jwt-secret']}\n[webhooks]\nencryption-key = @{files['encryption-key']}\n"
    )
    code, _, errors = dataapi("check-config", "--offline", "--config", "x.ini")
    assert code == os.EX_CONFIG
    assert errors.count("(to generate it, run dataapi keys)\n") == 2
    code, output, warnings = dataapi("keys", "--config", "x.ini")
    assert (code, warnings) == (0, errors)
    generated = dict(line.split(" = ") for line in output.splitlines() if line[0] not in ";[")
    assert generated.keys() == files.keys()
    for key, file in files.items():
        file.write_text(f"{generated[key]}\n")
    assert dataapi("check-config", "--offline", "--config", "x.ini")[0] == 0
    keys = dataapi("keys", "--config", "x.ini")[1].splitlines()
    assert [line.split()[0] for line in keys] == ["anon", "service_role"]


def test_keys_needs_no_configuration() -> None:
    code, output, errors = dataapi("keys", environ={})
    assert (code, errors) == (0, "")
    for key in ("jwt-secret", "publishable-keys", "secret-keys", "encryption-key"):
        assert f"\n{key} = " in output


def test_keys_reports_other_configuration_errors() -> None:
    code, output, errors = dataapi("keys", environ={"DATAAPI_PROJECT_DB_URI": "nonsense"})
    assert (code, output) == (os.EX_CONFIG, "")
    assert "db-uri" in errors


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("keys", "--no-such-option")])
def test_unknown_command_is_a_usage_error(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        dataapi(*arguments)
    assert exit_info.value.code == os.EX_USAGE
    assert "usage: dataapi" in capsys.readouterr().err
