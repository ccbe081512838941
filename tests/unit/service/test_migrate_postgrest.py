"""Migration of PostgREST's configuration: syntax, names and notes about missing settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dataapi.service.configuration import ConfigurationError, load
from dataapi.service.configuration.keys import PROJECT, SERVICE
from dataapi.service.configuration.postgrest import (
    KNOWN,
    LISTENING,
    RENAMED,
    SAME,
    WITHOUT,
    NotUnderstood,
    is_configuration,
    migrate,
    parse,
)
from dataapi.settings import Project, Settings, TransactionEnd
from support import documents

FOLDER = Path("/srv/postgrest")
FILE = Path("test.ini")
SECRET = "reallyreallyreallyreallyverysafe"


def migrated(text: str, environ: dict[str, str] | None = None) -> tuple[Settings, tuple[str, ...]]:
    migration = migrate(text, environ or {}, FOLDER)

    def read_file(path: Path) -> bytes:
        return migration.text.encode() if path == FILE else SECRET.encode()

    return load(FILE, {}, read_file=read_file), migration.notes


def project(text: str, environ: dict[str, str] | None = None) -> Project:
    """Return the project of a migrated file, without any notes."""
    settings, notes = migrated(text, environ)
    assert notes == ()
    return settings.projects[0]


def test_guide_lists_every_key_of_postgrest() -> None:
    chapter = documents.chapter(documents.read("docs/guides/from-postgrest.md"), "Keys")
    same_name, _, table = chapter.partition("| PostgREST |")
    rows = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([a-z0-9-]+)(?: = [a-z]+)?`", row)}
    named |= set(re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", same_name))
    assert named == KNOWN


def test_every_key_is_migrated_in_one_way() -> None:
    assert set(SAME) <= PROJECT.keys() | SERVICE.keys()
    assert set(RENAMED.values()) <= set(SAME)
    assert len(KNOWN) == len(SAME) + len(RENAMED) + len(LISTENING) + len(WITHOUT) + 1


def test_example_of_postgrests_documentation_is_migrated() -> None:
    loaded = project(f'''
        # postgrest.conf
        db-uri       = "postgres://user:p#ss@host:5432/dbname" # where it is
        db-anon-role = "anon"
        db-schemas = "api,  public"
        db-pool=20   db-tx-end = "commit-allow-override"
        jwt-secret           = "{SECRET}"
        jwt-secret-is-base64 = false
        db-aggregates-enabled = on
        db-max-rows = "1000"
        #; db-root-spec = "ignored"
        server-port = 3000
        app.settings.first = "Say \\"hi\\""
        app {{ settings {{ second = 2 }} }}
    ''')
    assert loaded == Project(
        ref=loaded.ref,
        organization=loaded.organization,
        db_uri="postgres://user:p#ss@host:5432/dbname",
        db_schemas=("api", "public"),
        db_pool=20,
        db_tx_end=TransactionEnd.COMMIT_ALLOW_OVERRIDE,
        db_aggregates_enabled=True,
        db_max_rows=1000,
        db_config=True,
        jwt_secret=SECRET,
        require_api_key=False,
        app_settings=(("app.settings.first", 'Say "hi"'), ("app.settings.second", "2")),
    )


def test_environment_overrides_the_file_and_is_interpolated() -> None:
    loaded = project(
        'db-anon-role = "$(ROLE)"\njwt-role-claim-key = "$$.roles[0]"\ndb-channel = "one"',
        {"ROLE": "visitor", "PGRST_DB_CHANNEL": "two", "PGRST_APP_SETTINGS_MY_KEY": "x", "OTHER": "y"},
    )
    assert (loaded.db_anon_role, loaded.jwt_role_claim_key, loaded.db_channel) == (
        "visitor",
        "$.roles[0]",
        "two",
    )
    assert loaded.app_settings == (("app.settings.my_key", "x"),)


def test_missing_settings_have_postgrests_defaults() -> None:
    settings, _ = migrated("")
    [loaded] = settings.projects
    assert (loaded.db_uri, loaded.db_anon_role, loaded.require_api_key) == ("postgresql://", "", False)
    assert (settings.listen, settings.admin_listen) == (("tcp:3000",), ())


@pytest.mark.parametrize(
    ("text", "listen", "admin"),
    [
        ('server-host = "127.0.0.1" admin-server-port = 3001', "tcp:3000:interface=127.0.0.1",
         "tcp:3001:interface=127.0.0.1"),
        ('server-host = "*6" server-port = 80', "tcp6:80", ""),
        ('server-host = "::1" admin-server-host = "localhost" admin-server-port = 1',
         r"tcp6:3000:interface=\:\:1", "tcp:1:interface=127.0.0.1"),
        ('server-unix-socket = "/run/a:b" server-unix-socket-mode = "600" server-port = 1',
         r"unix:/run/a\:b:mode=600", ""),
        ('admin-server-unix-socket = "admin.sock"', "tcp:3000", "unix:/srv/postgrest/admin.sock:mode=660"),
    ],
)  # fmt: skip
def test_listeners_become_endpoints(text: str, listen: str, admin: str) -> None:
    settings, notes = migrated(text)
    assert (settings.listen, settings.admin_listen, notes) == ((listen,), (admin,) if admin else (), ())


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", None), ('"TRUE"', None), ('"\\"true\\""', None), ("1", None), ("false", False), ('"0"', False)],
)
def test_booleans_are_parsed_as_in_postgrest(value: str, expected: bool | None) -> None:
    assert project(f"db-channel-enabled = {value}").db_channel_enabled is expected


@pytest.mark.parametrize(
    ("text", "line"),
    [("log-query = true", "errors"), ('log-query = "main-query"\nlog-level = "info"', "all")],
)
def test_log_query_is_migrated(text: str, line: str) -> None:
    assert f"log-query = {line}\n" in migrate(text, {}, FOLDER).text
    assert migrated(text)[1] == ()
    assert "log-query" not in migrate("log-query = false", {}, FOLDER).text


def test_settings_without_a_counterpart_are_noted() -> None:
    """Deprecated names are accepted, but current names take precedence, as in PostgREST."""
    settings, notes = migrated(
        'max-rows = 5\nrole-claim-key = ".a"\njwt-role-claim-key = ".b"\ndb-pool-timeout = 7\n'
        'openapi-security-active = true\ndb-poool = 3\nserver-timing-enabled = "perhaps"\n'
        'server-host = "api.internal"\njwt-aud = " spaced"'
    )
    [loaded] = settings.projects
    assert (loaded.db_max_rows, loaded.jwt_role_claim_key, loaded.db_pool_max_idletime) == (5, ".b", 7)
    assert [note.partition(":")[0] for note in notes] == [
        "db-pool-timeout",
        "max-rows",
        "role-claim-key",
        "server-host",
        "jwt-aud",
        "server-timing-enabled",
        "openapi-security-active",
        "db-poool",
    ]


def test_secret_files_are_relative_to_postgrests_working_directory() -> None:
    assert "jwt-secret = @/srv/postgrest/jwt\n" in migrate('jwt-secret = "@./jwt"', {}, FOLDER).text
    assert project('jwt-secret = "@/etc/jwt"').jwt_secret == SECRET


@pytest.mark.parametrize(
    "text",
    ["db-pool 5", "db-pool = ", 'db-uri = "open', "db-uri = bare", "a {", 'jwt-secret = "a$b"', "= 1",
     'db-uri = "$(NOWHERE)"', 'db-uri = "\\q"', "[project]\ndb-uri = x"],
)  # fmt: skip
def test_syntax_errors_of_postgrest_are_rejected(text: str) -> None:
    with pytest.raises(NotUnderstood):
        parse(text, {})


def test_configuration_of_postgrest_is_recognized() -> None:
    text = '# a comment\ndb-uri = "postgresql://"\n'
    assert is_configuration(text)
    with pytest.raises(ConfigurationError, match=r"PostgREST.*dataapi migrate-config test.ini"):
        load(FILE, {}, read_file=lambda _: text.encode())
    assert not is_configuration('some = "thing"\ndb-pool = 5\n')
