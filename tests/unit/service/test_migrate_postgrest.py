"""PostgREST's configuration in ours: its syntax, its names, and what is said of what has no counterpart."""

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

HERE = Path("/srv/postgrest")
FILE = Path("test.ini")
SECRET = "reallyreallyreallyreallyverysafe"


def migrated(text: str, environ: dict[str, str] | None = None) -> tuple[Settings, tuple[str, ...]]:
    made = migrate(text, environ or {}, HERE)

    def read_file(path: Path) -> bytes:
        return made.text.encode() if path == FILE else SECRET.encode()

    return load(FILE, {}, read_file=read_file), made.notes


def project(text: str, environ: dict[str, str] | None = None) -> Project:
    """Return the project of a migrated file of which there is nothing to say."""
    settings, notes = migrated(text, environ)
    assert notes == ()
    return settings.projects[0]


def test_the_guide_names_every_key() -> None:
    """Each one that PostgREST has, and no other."""
    chapter = documents.chapter(documents.read("docs/guides/from-postgrest.md"), "Keys")
    same, _, table = chapter.partition("| PostgREST |")
    rows = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([a-z0-9-]+)(?: = [a-z]+)?`", row)}
    named |= set(re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", same))
    assert named == KNOWN


def test_every_key_has_one_meaning() -> None:
    assert set(SAME) <= PROJECT.keys() | SERVICE.keys()
    assert set(RENAMED.values()) <= set(SAME)
    assert len(KNOWN) == len(SAME) + len(RENAMED) + len(LISTENING) + len(WITHOUT) + 1


def test_a_file_as_postgrests_documentation_has_it() -> None:
    found = project(f'''
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
    assert found == Project(
        ref=found.ref,
        organization=found.organization,
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


def test_the_environment_wins_and_interpolates() -> None:
    found = project(
        'db-anon-role = "$(ROLE)"\njwt-role-claim-key = "$$.roles[0]"\ndb-channel = "one"',
        {"ROLE": "visitor", "PGRST_DB_CHANNEL": "two", "PGRST_APP_SETTINGS_MY_KEY": "x", "OTHER": "y"},
    )
    assert (found.db_anon_role, found.jwt_role_claim_key, found.db_channel) == (
        "visitor",
        "$.roles[0]",
        "two",
    )
    assert found.app_settings == (("app.settings.my_key", "x"),)


def test_what_is_left_out_means_what_it_means_to_postgrest() -> None:
    """No anonymous role, no API keys, port 3000 of every interface, no admin listener."""
    settings, _ = migrated("")
    [found] = settings.projects
    assert (found.db_uri, found.db_anon_role, found.require_api_key) == ("postgresql://", "", False)
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
def test_listeners_are_endpoints(text: str, listen: str, admin: str) -> None:
    settings, notes = migrated(text)
    assert (settings.listen, settings.admin_listen, notes) == ((listen,), (admin,) if admin else (), ())


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", None), ('"TRUE"', None), ('"\\"true\\""', None), ("1", None), ("false", False), ('"0"', False)],
)
def test_switches_are_read_as_postgrest_reads_them(value: str, expected: bool | None) -> None:
    assert project(f"db-channel-enabled = {value}").db_channel_enabled is expected


@pytest.mark.parametrize(
    ("text", "line"),
    [("log-query = true", "errors"), ('log-query = "main-query"\nlog-level = "info"', "all")],
)
def test_the_statements_of_logged_requests_are_logged(text: str, line: str) -> None:
    assert f"log-query = {line}\n" in migrate(text, {}, HERE).text
    assert migrated(text)[1] == ()
    assert "log-query" not in migrate("log-query = false", {}, HERE).text


def test_what_has_no_counterpart_is_named() -> None:
    """Deprecated names are taken for the new ones, whose own values win, as in PostgREST."""
    settings, notes = migrated(
        'max-rows = 5\nrole-claim-key = ".a"\njwt-role-claim-key = ".b"\ndb-pool-timeout = 7\n'
        'openapi-security-active = true\ndb-poool = 3\nserver-timing-enabled = "perhaps"\n'
        'server-host = "api.internal"\njwt-aud = " spaced"'
    )
    [found] = settings.projects
    assert (found.db_max_rows, found.jwt_role_claim_key, found.db_pool_max_idletime) == (5, ".b", 7)
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


def test_files_of_secrets_are_named_from_where_postgrest_runs() -> None:
    assert "jwt-secret = @/srv/postgrest/jwt\n" in migrate('jwt-secret = "@./jwt"', {}, HERE).text
    assert project('jwt-secret = "@/etc/jwt"').jwt_secret == SECRET


@pytest.mark.parametrize(
    "text",
    ["db-pool 5", "db-pool = ", 'db-uri = "open', "db-uri = bare", "a {", 'jwt-secret = "a$b"', "= 1",
     'db-uri = "$(NOWHERE)"', 'db-uri = "\\q"', "[project]\ndb-uri = x"],
)  # fmt: skip
def test_what_postgrest_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        parse(text, {})


def test_a_configuration_of_postgrests_is_recognized() -> None:
    text = '# a comment\ndb-uri = "postgresql://"\n'
    assert is_configuration(text)
    with pytest.raises(ConfigurationError, match=r"PostgREST.*dataapi migrate-config test.ini"):
        load(FILE, {}, read_file=lambda _: text.encode())
    assert not is_configuration('some = "thing"\ndb-pool = 5\n')
