"""The configuration: its sources, validation and error messages."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from dataapi.service.configuration import ConfigurationError, load, load_service
from dataapi.service.configuration.keys import NOTIFY, PROJECT, SERVICE, WEBHOOKS
from dataapi.service.configuration.sources import variable_name
from dataapi.service.inspection import inspect_service
from dataapi.settings import NotifyChannel, Project, Settings, TransactionEnd, Webhooks
from hypothesis import given
from hypothesis import strategies as st

SECRET = "not-so-secret-but-long-enough-32"
PUBLIC_KEY = '{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}'
URI = "postgresql://authenticator:hunter2@127.0.0.1/app"
MINIMAL = f"[project]\ndb-uri = {URI}\njwt-secret = {SECRET}\n"
SEVERAL = "".join(
    f"[project:{letter * 20}]\ndb-uri = {URI}\njwt-secret = {SECRET}\nhosts = {letter}.example.org\n"
    for letter in "ab"
)
FILE = Path("test.ini")
SHIPPED = Path(__file__).parents[3] / "etc" / "dataapi.ini"


def read(
    text: str | bytes = MINIMAL,
    environ: dict[str, str] | None = None,
    files: dict[str, bytes] | None = None,
    **options: Any,
) -> Settings:
    """Load ``text`` as the configuration file, and ``files`` as files that it references."""
    contents = {str(FILE): text.encode() if isinstance(text, str) else text, **(files or {})}

    def read_file(path: Path) -> bytes:
        try:
            return contents[str(path)]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory") from None

    return load(FILE, environ or {}, read_file=read_file, **options)


def errors_of(
    text: str | bytes = MINIMAL, environ: dict[str, str] | None = None, files: dict[str, bytes] | None = None
) -> list[str]:
    """Return the error messages of loading ``text``."""
    with pytest.raises(ConfigurationError) as caught:
        read(text, environ, files)
    assert str(caught.value).splitlines() == [str(error) for error in caught.value.mistakes]
    return str(caught.value).splitlines()


def project(line: str, environ: dict[str, str] | None = None) -> Project:
    """Return the project of a minimal configuration to which ``line`` is added."""
    return read(MINIMAL + line + "\n", environ).projects[0]


def test_minimal_configuration_has_the_documented_defaults() -> None:
    settings = read()
    assert settings == Settings(
        projects=(
            Project(ref="abcdefghijklmnopqrst", organization="default", db_uri=URI, jwt_secret=SECRET),
        ),
        file=FILE,
    )


def test_shipped_file_documents_every_key_with_its_default() -> None:
    text = SHIPPED.read_text()
    documented = {"dataapi": set[str](), "project": set[str](), "webhooks": set[str](), "notify": set[str]()}
    section = ""
    for line in text.splitlines():
        if line.removeprefix("; ").startswith("[") and line.endswith("]"):
            section = line.removeprefix("; ").strip("[]")
        elif (name := line.removeprefix("; ").partition(" =")[0]) and " =" in line and " " not in name:
            assert name not in documented[section], name
            documented[section].add(name)
    assert documented == {
        "dataapi": set(SERVICE), "project": set(PROJECT), "webhooks": set(WEBHOOKS), "notify": set(NOTIFY),
    }  # fmt: skip

    settings = load(SHIPPED, {"DATAAPI_PROJECT_JWT_SECRET": SECRET})
    shipped = settings.projects[0]
    assert settings == Settings(
        projects=(Project(shipped.ref, "default", shipped.db_uri, jwt_secret=SECRET),),
        webhooks=Webhooks(),
        file=SHIPPED,
    )


def test_shipped_file_requires_a_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(SHIPPED, {})
    [error] = caught.value.mistakes
    assert error.key == "require-api-key"
    assert "jwt-secret" in error.expected


@pytest.mark.parametrize(
    ("keys", "kind"),
    [(SERVICE, Settings), (PROJECT, Project), (WEBHOOKS, Webhooks), (NOTIFY, NotifyChannel)],
)
def test_keys_match_the_fields_of_settings(keys: dict[str, object], kind: type) -> None:
    fields = {field.name.replace("_", "-") for field in dataclasses.fields(kind)}
    assert {key.replace("app.settings.*", "app-settings") for key in keys} == fields - {
        "projects",
        "webhooks",
        "notify",
        "section",
        "file",
        "secret-files",
        "deprecations",
        "settings-error",
        "tour",
    }


def test_every_kind_of_value_is_read() -> None:
    settings = read(
        """
        [dataapi]
        listen = tcp:8000
          unix:/run/x.sock:mode=660   ; a second one
          systemd:domain=INET:name=http
        admin-listen =
        workers = auto
        log-format = text
        log-level = info
        [project]
        db-uri = host=/run/postgresql dbname=app
        db-schemas = api, public
        db-extra-search-path =
        db-pool-acquisition-timeout = 0.5
        db-max-rows = 1000
        db-tx-end = rollback-allow-override
        jwt-role-claim-key = ."https://example.org/claims"[0].role
        jwt-cache-max-entries = 0
        require-api-key = No
        server-cors-allowed-origins = https://app.example.org, http://[::1]:3000
        db-hoisted-tx-settings = Work_Mem
          a.b
        server-trace-header = traceparent
        server-timing-enabled = on
        publishable-keys = one,
          two
        graphql-features = upsert, groupBy
        rest-features = nested-inserts
        graphql-validation = strict
        hosts = API.Example.org, [::1]
        [webhooks]
        retry-waits = 1, 2.5
        allow-addresses = 10.0.0.0/8, fd00::1
        require-https = TRUE
        row-change-types = v1.shop.order, v2.shop.order
        """.replace("\n        ", "\n")
    )
    assert settings.listen == ("tcp:8000", "unix:/run/x.sock:mode=660", "systemd:domain=INET:name=http")
    assert settings.admin_listen == ()
    assert settings.workers == len(os.sched_getaffinity(0))
    assert (settings.log_format, settings.log_level) == ("text", "info")
    [project_] = settings.projects
    assert project_.db_schemas == ("api", "public")
    assert project_.db_extra_search_path == ()
    assert project_.db_pool_acquisition_timeout == 0.5
    assert project_.db_max_rows == 1000
    assert project_.db_tx_end is TransactionEnd.ROLLBACK_ALLOW_OVERRIDE
    assert project_.jwt_cache_max_entries == 0
    assert project_.require_api_key is False
    assert project_.server_cors_allowed_origins == ("https://app.example.org", "http://[::1]:3000")
    assert project_.db_hoisted_tx_settings == ("work_mem", "a.b")
    assert (project_.server_trace_header, project_.server_timing_enabled) == ("traceparent", True)
    assert project_.publishable_keys == ("one", "two")
    assert project_.graphql_features == {"upsert", "groupBy"}
    assert project_.rest_features == {"nested-inserts"}
    assert project_.graphql_validation == "strict"
    assert project_.hosts == ("api.example.org", "[::1]")
    assert settings.webhooks is not None
    assert settings.webhooks.retry_waits == (1.0, 2.5)
    assert settings.webhooks.allow_addresses == ("10.0.0.0/8", "fd00::1")
    assert settings.webhooks.require_https is True
    assert settings.webhooks.row_change_types == ("v1.shop.order", "v2.shop.order")


def test_environment_overrides_file_and_command_line_overrides_both() -> None:
    environ = {"DATAAPI_PROJECT_DB_POOL": "7", "DATAAPI_DATAAPI_LISTEN": "tcp:1, tcp:2", "PATH": "/bin"}
    assert project("db-pool = 3", environ).db_pool == 7
    assert read(environ=environ).listen == ("tcp:1", "tcp:2")
    assert read(environ=environ, overrides=[("dataapi", "listen", "tcp:3")]).listen == ("tcp:3",)


def test_port_variable_is_the_default_of_listen() -> None:
    assert read(environ={"PORT": "5000"}).listen == ("tcp:5000",)
    listening = {"PORT": "5000", "DATAAPI_DATAAPI_LISTEN": "tcp:1"}
    assert read(environ=listening).listen == ("tcp:1",)
    command_line = [("dataapi", "listen", "tcp:2")]
    assert read(environ={"PORT": "5000"}, overrides=command_line).listen == ("tcp:2",)
    assert read("[dataapi]\nlisten = tcp:3\n" + MINIMAL, {"PORT": "5000"}).listen == ("tcp:3",)
    [error] = errors_of(environ={"PORT": "http"})
    assert error.startswith("environment PORT: [dataapi] listen = 'tcp:http': ")


def test_default_files_are_in_the_working_directory_and_in_etc() -> None:
    """``dataapi init`` writes to the working directory. The repository's template is never used."""
    local, system = Path("dataapi.ini"), Path("/etc/dataapi/dataapi.ini")
    template = Path("etc/dataapi.ini")

    def chosen(*present: Path) -> Path | None:
        def read_file(path: Path) -> bytes:
            if path not in present:
                raise FileNotFoundError(2, "No such file or directory")
            return MINIMAL.encode()

        return load(None, {}, read_file=read_file).file

    assert chosen(local, system, template) == local
    assert chosen(system, template) == system
    with pytest.raises(ConfigurationError) as caught:
        chosen(template)
    [message] = str(caught.value).splitlines()
    assert message == (
        "configuration: no file found: tried dataapi.ini and /etc/dataapi/dataapi.ini; use"
        " --config, or set DATAAPI_PROJECT_DB_URI; etc/dataapi.ini is a template: copy it to dataapi.ini"
    )
    with pytest.raises(ConfigurationError, match=r"DATAAPI_PROJECT_DB_URI$"):
        chosen()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('jwt-aud = "mine"', 'expected no " around the value'),
        ("db-anon-role = 'anon'", "expected no ' around the value"),
        ("jwt-aud = mine # and nobody else's", "expected no # after the value"),
    ],
)
def test_quotes_and_trailing_comments_are_rejected(line: str, expected: str) -> None:
    [error] = errors_of(MINIMAL + line)
    assert expected in error
    assert project("", {"DATAAPI_PROJECT_JWT_AUD": '"mine"'}).jwt_aud == '"mine"'
    from_file = read(MINIMAL + "jwt-aud = @/aud", files={"/aud": b"my # audience"})
    assert from_file.projects[0].jwt_aud == "my # audience"


@pytest.mark.parametrize(
    ("listen", "admin", "wrong"),
    [
        ("tcp:8000:interface=127.0.0.1", "tcp:8000:interface=127.0.0.1", "admin-listen"),
        ("tcp:8000", "tcp:8000:interface=127.0.0.1", "admin-listen"),
        ("tcp:8000, tcp:8000", "tcp:8001", "listen"),
        ("tcp:8000", "tcp6:8000", None),
        ("tcp:0", "tcp:0", None),
        ("unix:/a", "unix:/a", None),
    ],
)
def test_listeners_need_different_ports(listen: str, admin: str, wrong: str | None) -> None:
    """IPv4 and IPv6 ports are separate, and port 0 is any free port."""
    text = f"[dataapi]\nlisten = {listen}\nadmin-listen = {admin}\n{MINIMAL}"
    if wrong is None:
        assert read(text).admin_listen == (admin,)
    else:
        [error] = errors_of(text)
        assert error.startswith(f"test.ini: [dataapi] {wrong} = 'tcp:8000")


@pytest.mark.parametrize(
    ("endpoint", "public"),
    [
        ("tcp:8001", True),
        ("tcp:8001:interface=0.0.0.0", True),
        ("tcp:8001:interface=10.1.2.3", True),
        ("tcp:8001:interface=127.0.0.1", False),
        ("tcp:8001:interface=localhost", False),
        (r"tcp6:8001:interface=\:\:1", False),
        ("unix:/run/dataapi/admin.sock", False),
        ("systemd:domain=INET:name=admin", False),
    ],
)
def test_public_admin_listener_is_a_warning(endpoint: str, public: bool) -> None:
    findings = inspect_service(read(f"[dataapi]\nadmin-listen = {endpoint}\n{MINIMAL}"))
    assert [finding.wrong for finding in findings] == [False] * public
    assert all(
        str(finding).startswith(f"warning: admin-listen: {endpoint} can be reached") for finding in findings
    )


@pytest.mark.parametrize(
    ("secret", "confidential"),
    [
        (f"db-uri = {URI}", True),
        ("db-uri = postgresql://authenticator@127.0.0.1/app", False),
        (f"jwt-secret = {SECRET}", True),
        ("jwt-secret = https://issuer.example.org/keys", False),
        (f'jwt-secret = {{"kty": "oct", "k": "{"c2VjcmV0" * 6}"}}', True),
        (f'jwt-secret = {{"keys": [{PUBLIC_KEY}]}}', False),
        ("publishable-keys = sb_publishable_one", False),
        ("secret-keys = sb_secret_one", True),
    ],
)
def test_world_readable_secrets_are_a_warning(tmp_path: Path, secret: str, confidential: bool) -> None:
    key, _, value = secret.partition(" = ")
    rest = {"db-uri": "postgresql://authenticator@127.0.0.1/app", "publishable-keys": "k"}
    rest.pop(key, None)
    lines = "".join(f"{name} = {default}\n" for name, default in rest.items())
    file, from_file = tmp_path / "x.ini", tmp_path / "kept"
    for path, written in ((file, value), (from_file, f"@{from_file}")):
        file.write_text(f"[project]\n{lines}{key} = {written}\n")
        from_file.write_text(value)
        for each in (file, from_file):
            each.chmod(0o644)
        problem = "contains secrets but is readable by every user of this machine"
        findings = [str(finding) for finding in inspect_service(load(file, {}))]
        assert findings == [f"warning: {path} {problem}: chmod o= {path}"] * confidential
        path.chmod(0o640)
        assert inspect_service(load(file, {})) == []


def test_webhooks_without_an_encryption_key_are_an_error() -> None:
    [finding] = inspect_service(read(f"{MINIMAL}[webhooks]\n"))
    assert finding.wrong
    assert str(finding) == (
        "[webhooks] has no encryption-key, so no endpoints can be created: dataapi keys prints one;"
        " remove the section to disable webhooks"
    )
    key = base64.b64encode(bytes(32)).decode()
    assert inspect_service(read(f"{MINIMAL}[webhooks]\nencryption-key = {key}\n")) == []


def test_configuration_may_come_from_the_environment_only() -> None:
    def nothing(path: Path) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    environ = {"DATAAPI_PROJECT_DB_URI": URI, "DATAAPI_PROJECT_JWT_SECRET": SECRET}
    settings = load(None, environ, read_file=nothing)
    assert settings.file is None
    assert settings.projects[0].db_uri == URI


def test_service_settings_can_be_loaded_without_projects() -> None:
    environ = {"DATAAPI_DATAAPI_WORKERS": "2", "DATAAPI_PROJECT_DB_URI": "nonsense"}
    defaults = Settings(projects=(), log_format="text")
    overrides = [("dataapi", "listen", "tcp:1"), ("project", "db-uri", "nonsense")]
    loaded = load_service(environ, overrides=overrides, defaults=defaults)
    assert loaded == dataclasses.replace(defaults, workers=2, listen=("tcp:1",))

    with pytest.raises(ConfigurationError) as caught:
        load_service(
            {"DATAAPI_DATAAPI_WORKER": "2"}, overrides=[("dataapi", "listen", "8000")], defaults=defaults
        )
    assert [error.origin for error in caught.value.mistakes] == [
        "environment DATAAPI_DATAAPI_WORKER",
        "command line",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("db-statement-timeout = 0.5", {"db_statement_timeout": 0.5}),
        ("db-statement-timeout = 0", {"db_statement_timeout": None}),
        ("db-statement-timeout =", {"db_statement_timeout": None}),
        ("db-prepared-statements = AUTO", {"db_prepared_statements": None}),
        ("db-prepared-statements = yes", {"db_prepared_statements": True}),
        ("db-channel-enabled = no", {"db_channel_enabled": False}),
    ],
)
def test_special_values_are_parsed(line: str, expected: dict[str, object]) -> None:
    [project] = read(f"{MINIMAL}{line}\n").projects
    assert {name: getattr(project, name) for name in expected} == expected


def test_empty_anonymous_role_disables_it() -> None:
    assert project("db-anon-role =").db_anon_role == ""
    assert project("", {"DATAAPI_PROJECT_DB_ANON_ROLE": ""}).db_anon_role == ""
    assert project("").db_anon_role == "anon"


def test_project_reference_comes_from_section_or_variable() -> None:
    settings = read(SEVERAL, {f"DATAAPI_PROJECT_{'B' * 20}_DB_POOL": "2"})
    assert [(each.ref, each.db_pool) for each in settings.projects] == [("a" * 20, 10), ("b" * 20, 2)]


def test_secret_file_may_end_with_one_newline() -> None:
    text = f"[project]\ndb-uri = @/uri\njwt-secret = {SECRET}\n"
    assert read(text, files={"/uri": URI.encode() + b"\n"}).projects[0].db_uri == URI
    environ = {"DATAAPI_PROJECT_JWT_SECRET": "@/secret"}
    loaded = read(environ=environ, files={"/secret": SECRET.encode() + b"\n\n"})
    assert loaded.projects[0].jwt_secret == SECRET + "\n"


def test_error_lists_the_default_files_if_none_exists() -> None:
    def nothing(path: Path) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    with pytest.raises(ConfigurationError) as caught:
        load(None, {}, read_file=nothing)
    message = str(caught.value)
    for part in ("tried dataapi.ini", "/etc/dataapi/dataapi.ini", "--config", "DATAAPI_PROJECT_DB_URI"):
        assert part in message


def test_missing_configuration_file_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^/nowhere/x\.ini: cannot be read: No such file"):
        load(Path("/nowhere/x.ini"), {})


def test_unreadable_default_file_is_an_error() -> None:
    def forbidden(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(ConfigurationError, match=r"^dataapi\.ini: cannot be read: Permission denied"):
        load(None, {"DATAAPI_PROJECT_DB_URI": URI}, read_file=forbidden)


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("dataapi", "jwt-secret = hush", "it belongs in [project]"),
        ("project", "workers = 2", "it belongs in [dataapi]"),
        ("project", "retention-days = 2", "it belongs in [webhooks]"),
        ("dataapi", "db-uri = postgresql:///app", "it belongs in [project] or [webhooks] or [notify]"),
        ("webhooks", "app.settings.mode = x", "it belongs in [project]"),
    ],
)
def test_key_in_the_wrong_section_is_explained(section: str, line: str, expected: str) -> None:
    key, _, value = line.partition(" = ")
    text = MINIMAL if section == "project" else f"{MINIMAL}[{section}]\n"
    assert errors_of(f"{text}{line}\n") == [f"test.ini: [{section}] {key}: no such key; {expected}"]
    if not key.startswith("app."):
        sections = re.findall(r"\[(\w+)\]", expected)
        variables = " or ".join(variable_name(each, key) for each in sections)
        wrong = variable_name(section, key)
        assert errors_of(environ={wrong: value}) == [
            f"environment {wrong}: no such key; did you mean {variables}?"
        ]


def test_all_errors_are_reported_together() -> None:
    messages = errors_of(
        """
[dataapi]
workers = many
[project]
db-uri = postgresql://authenticator:hunter2@127.0.0.1:99999/app
dbpool = 3
db-pool = ten
[web-hooks]
timeout = 3
""",
        {"DATAAPI_WEBHOOKS_TIMEOUT": "-1", "DATAAPI_PROJECT_DB_POL": "3", "DATAAPI_FOO": "1"},
    )
    assert messages == [
        "environment DATAAPI_FOO: no such key",
        "environment DATAAPI_PROJECT_DB_POL: no such key; did you mean DATAAPI_PROJECT_DB_POOL?",
        "test.ini: [web-hooks]: no such section; did you mean webhooks?",
        "test.ini: [dataapi] workers = 'many': expected a whole number of at least 1, or auto",
        "test.ini: [project] db-uri: "
        "expected postgresql://user:password@host:port/database or host=... dbname=...",
        "test.ini: [project] dbpool: no such key; did you mean db-pool?",
        "test.ini: [project] db-pool = 'ten': expected a whole number of at least 1",
        "test.ini: [project] require-api-key: all requests would be rejected: expected jwt-secret, "
        "publishable-keys or secret-keys (to generate them, run dataapi keys), or require-api-key = no",
        "environment DATAAPI_WEBHOOKS_TIMEOUT: [webhooks] timeout = '-1': "
        "expected a positive number of seconds, such as 10 or 0.5",
    ]


def test_relative_folder_of_documents_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "documents").mkdir()
    monkeypatch.chdir(tmp_path)
    loaded = project("graphql-documents = documents\ngraphql-documents-only = yes")
    assert loaded.graphql_documents == tmp_path / "documents"
    assert loaded.graphql_documents_only


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ref = ABC", "expected 20 letters a-z"),
        ("ref = abcdefghijklmnopqrs1", "expected 20 letters a-z"),
        ("organization = a b", "expected up to 64 letters"),
        ("hosts = https://api.example.org", "expected host names"),
        ("db-schemas = ,", "expected at least one schema"),
        ("db-schemas = public, pg_catalog", "pg_catalog cannot be exposed"),
        ("db-schemas = information_schema", "information_schema cannot be exposed"),
        ("db-schemas = a, a", "only once"),
        ("db-pool = 0", "expected a whole number of at least 1"),
        ("db-pool = \u0663", "expected a whole number of at least 1"),
        ("db-pool = 1_0", "expected a whole number of at least 1"),
        ("db-max-rows = -1", "expected a whole number of at least 1"),
        ("db-pool-acquisition-timeout = nan", "expected a positive number"),
        ("db-pool-acquisition-timeout = 0", "expected a positive number"),
        (
            "db-tx-end = maybe",
            "expected one of commit, rollback, commit-allow-override, rollback-allow-override",
        ),
        ("db-plan-enabled = ja", "expected yes or no"),
        ("db-prepared-statements = maybe", "expected yes, no or auto"),
        ("db-channel-enabled = 2", "expected yes, no or auto"),
        ("db-statement-timeout = 30s", "expected seconds up to 2000000"),
        ("db-statement-timeout = 9999999", "expected seconds up to 2000000"),
        ("jwt-role-claim-key = role", "invalid claim path at character 1"),
        ("jwt-role-claim-key = .a[x]", "invalid claim path at character 3"),
        ("jwt-cache-max-entries = -1", "expected a whole number of at least 0"),
        (
            "jwt-secret-is-base64 = yes",
            "jwt-secret has 24 bytes, expected 32 or more",
        ),
        ("client-error-verbosity = terse", "expected one of verbose, minimal"),
        ("server-trace-header = X Trace", "expected the name of a header"),
        ("server-trace-header = Content-Length", "expected the name of a header"),
        ("server-cors-allowed-origins = *", "expected origins without path"),
        ("server-cors-allowed-origins = https://app.example.org/", "expected origins without path"),
        ("db-hoisted-tx-settings = work_mem, a;b", "expected names of PostgreSQL's settings"),
        ("db-hoisted-tx-settings = work_mem, role", "expected names of PostgreSQL's settings"),
        ("openapi-mode = on", "expected one of follow-privileges, ignore-privileges, disabled"),
        ("publishable-keys = k, k", "expected each key only once"),
        ("secret-keys = k\npublishable-keys = k", "expected keys that are not in publishable-keys"),
        ("graphql-validation = lax", "expected one of compatible, strict"),
        ("graphql-features = upsert, upset", "expected some of upsert, "),
        ("rest-features = nestedInserts", "expected some of nested-inserts"),
        ("graphql-documents = /no/such/folder", "expected a folder that exists"),
        (
            "graphql-documents-only = yes",
            "all documents would be rejected: expected graphql-documents, or graphql-documents-only = no",
        ),
        ("rest-max-embeds = 100", "no such key"),
        ("server-version-enabled = no", "no such key; did you mean server-timing-enabled?"),
        ("[dataapi]\nheader-timeout = 10", "no such key"),
        ("max-body = 1MB", "expected a whole number"),
        ("max-body = 300000000", "expected at least 300000000, the max-body of a project"),
        ("[dataapi]\nmax-bodies = 1000", "expected at least 10485760, the max-body of a project"),
        ("[dataapi]\nmax-connections = 0", "expected a whole number of at least 1"),
        ("[dataapi]\nlog-level = debgu", "expected one of crit, error, warn, info, debug"),
        ("[dataapi]\nlog-format = xml", "expected one of json, text"),
        ("[dataapi]\nlisten =", "expected at least one Twisted endpoint"),
        ("[dataapi]\nlisten = 8000", "expected a Twisted endpoint, such as tcp:8000:interface=127.0.0.1;"),
        ("[dataapi]\nlisten = 3000", "expected a Twisted endpoint, such as tcp:3000:interface=127.0.0.1;"),
        ("[dataapi]\nlisten = http:1", "expected a Twisted endpoint, such as tcp:8000:interface=127.0.0.1;"),
        ("[dataapi]\nlisten = tcp:", "expected a value for port"),
        ("[dataapi]\nlisten = tcp", "expected a port"),
        ("[dataapi]\nlisten = tcp:65536", "expected a port from 0 to 65535"),
        ("[dataapi]\nlisten = tcp:1:port=2", "expected the argument port only once"),
        ("[dataapi]\nlisten = tcp:1:iface=x", "tcp has no argument 'iface'"),
        ("[dataapi]\nlisten = tcp:1:2:3:4", "expected at most 3 arguments"),
        ("[dataapi]\nlisten = unix:/x:mode=999", "expected an octal mode"),
        ("[dataapi]\nlisten = systemd:INET", "expected either index or name"),
        ("[dataapi]\nadmin-listen = tcp:1:backlog=x", "expected a whole number for backlog"),
        ("[webhooks]\nretry-waits = 1, soon", "expected seconds separated by commas"),
        ("[webhooks]\nallow-addresses = 10.0.0.1/8", "expected addresses or networks"),
        ("[webhooks]\nrow-change-types = orders", "expected event types separated by commas"),
        ("[webhooks]\nretention-days = 0", "expected a whole number of at least 1"),
    ],
)
def test_invalid_value_is_rejected_with_an_explanation(line: str, expected: str) -> None:
    [message] = errors_of(MINIMAL + line + "\n")
    assert expected in message
    assert message.startswith("test.ini: [")


@pytest.mark.parametrize(
    ("uri", "accepted"),
    [
        ("postgresql:///app?host=/run/postgresql", True),
        ("postgres://a:p%40ss@db1:5432,db2:5433/app?target_session_attrs=read-write", True),
        ("host=/run/postgresql user='me' dbname=app", True),
        ("postgresql://", True),
        ("postgres://", True),
        ("service=app", True),
        ("postgresql:", False),
        ("postgresql://a@b/c?sslmod=require", False),
        ("postgresql://a@b:0/c", False),
        ("postgresql://a@b:port/c", False),
        ("mysql://a@b/c", False),
        ("app", False),
        ("user=a\0b", False),
    ],
)
def test_connection_string_must_be_valid_for_libpq(uri: str, accepted: bool) -> None:
    environ = {"DATAAPI_PROJECT_DB_URI": uri}
    if accepted:
        assert read(environ=environ).projects[0].db_uri == uri
    else:
        [message] = errors_of(environ=environ)
        assert "db-uri: expected postgresql://user:password@host:port/database" in message


def _base64url(data: bytes) -> str:
    import base64  # noqa: PLC0415 - only this helper needs it

    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


VALID_KEY = {"kty": "oct", "alg": "HS256", "k": _base64url(b"k" * 32)}


@pytest.mark.parametrize(
    "secret",
    [
        SECRET,
        "ä" * 32,
        json.dumps(VALID_KEY),
        json.dumps({"keys": [VALID_KEY, VALID_KEY]}),
        "https://issuer.example.org/.well-known/jwks.json",
    ],
)
def test_secret_may_be_text_jwk_jwks_or_url(secret: str) -> None:
    environ = {"DATAAPI_PROJECT_JWT_SECRET": secret}
    assert read(environ=environ).projects[0].jwt_secret == secret


@pytest.mark.parametrize(("size", "valid"), [(31, False), (32, True)])
def test_length_of_a_base64_secret_is_in_bytes(size: int, valid: bool) -> None:
    text = _base64url(b"\xff" * size)
    environ = {"DATAAPI_PROJECT_JWT_SECRET": text, "DATAAPI_PROJECT_JWT_SECRET_IS_BASE64": "yes"}
    if valid:
        assert read(environ=environ).projects[0].jwt_secret_is_base64
    else:
        [message] = errors_of(environ=environ)
        assert "jwt-secret has 31 bytes, expected 32 or more" in message


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        ("short", "32 characters or more"),
        ('{"kty": "oct"', "not valid JSON"),
        ("{" + '"a":[' * 100_000, "not valid JSON"),
        ('{"kty": "DSA"}', "key 1 needs a kty of oct, RSA, EC or OKP"),
        ('{"kty": "RSA", "n": "!", "e": 3}', "key 1 is not a valid key"),
        ('{"keys": []}', "the JWKS contains no key"),
        (json.dumps({"keys": [VALID_KEY, {"kty": "EC"}]}), "key 2 needs a kty of"),
        ('{"keys": [1]}', "key 1 is not a JSON object"),
        ("http://issuer.example.org/jwks.json", "an attacker on the network could replace the keys"),
        ("https://user:password@issuer.example.org/", "is not a URL with a host and without a user name"),
    ],
)
def test_invalid_secret_is_rejected_without_showing_it(secret: str, expected: str) -> None:
    [message] = errors_of(environ={"DATAAPI_PROJECT_JWT_SECRET": secret})
    assert expected in message
    assert message.startswith("environment DATAAPI_PROJECT_JWT_SECRET: [project] jwt-secret: ")


def test_secrets_are_not_in_errors_or_repr() -> None:
    text = f"""[project]
jwt-secrt = hunter2-a
hunter2-b
db-uri = hunter2-c
publishable-keys = hunter2-d hunter2-e
db-pool = @/pool
secret-keys = hunter2-f
[webhooks]
db-uri = hunter2-g
[dataapi]
hunter2-h
{"x" * 3}
"""
    with pytest.raises(ConfigurationError) as caught:
        read(text, files={"/pool": b"hunter2-i"})
    assert len(caught.value.mistakes) >= 6
    assert "hunter2" not in str(caught.value) + repr(caught.value.mistakes)
    assert "hunter2" not in repr(project("secret-keys = hunter2-k\n[webhooks]\ndb-uri = host=hunter2"))


def test_unreadable_secret_file_is_an_error_with_its_name() -> None:
    [message] = errors_of(environ={"DATAAPI_PROJECT_JWT_SECRET": "@/no/such"})
    assert "the file /no/such cannot be read: No such file or directory" in message
    [message] = errors_of(environ={"DATAAPI_PROJECT_JWT_SECRET": "@/binary"}, files={"/binary": b"ab\xff"})
    assert "the file /binary is not UTF-8: byte 2" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[project]\nhosts = \xff", "test.ini: is not UTF-8: byte 18"),
        ("db-uri = x", "test.ini: line 1: expected a section such as [project] first"),
        (
            "[project]\nref = a\nref = b",
            "test.ini: [project] ref: the key is repeated on line 3",
        ),
        ("[project]\n[project]", "test.ini: [project]: the section is repeated on line 2"),
        ("[dataapi]", "test.ini: expected a section [project], or several [project:REF]"),
        ("", "test.ini: expected a section [project], or several [project:REF]"),
    ],
)
def test_file_that_is_not_a_configuration_is_one_error(text: str | bytes, expected: str) -> None:
    assert errors_of(text) == [expected]


def test_invalid_lines_do_not_hide_other_errors() -> None:
    messages = errors_of(MINIMAL + "nonsense\ndb-pool = x\nmore nonsense\n")
    assert messages == [
        "test.ini: line 4: expected key = value",
        "test.ini: line 6: expected key = value",
        "test.ini: [project] db-pool = 'x': expected a whole number of at least 1",
    ]


def test_connection_string_is_required() -> None:
    [message] = errors_of(f"[project]\njwt-secret = {SECRET}")
    assert message.startswith("test.ini: [project] db-uri: expected a connection string")


def test_projects_need_different_references_and_hosts() -> None:
    same = SEVERAL.replace("b.example.org", "A.example.org")
    [message] = errors_of(same)
    assert message.endswith(f"expected each host name in one project only; [project:{'a' * 20}] also has it")
    [message] = errors_of(SEVERAL.replace("hosts = b.example.org", ""))
    assert "hosts: expected host names, because there are several projects" in message
    [message] = errors_of(SEVERAL.replace("[project:" + "b" * 20, "[project:short"))
    assert message == "test.ini: [project:short]: expected 20 letters a-z after [project:"
    [message] = errors_of(SEVERAL + f"ref = {'c' * 20}\n")
    assert f"ref: expected {'b' * 20}, as in the name of the section" in message
    assert any("not both" in message for message in errors_of(SEVERAL + MINIMAL))


def test_app_settings_may_have_any_name() -> None:
    loaded = project(
        "app.settings.Key = first\napp.settings.other =\n", {"DATAAPI_PROJECT_APP_SETTINGS_MY_KEY": "three"}
    )
    assert loaded.app_settings == (
        ("app.settings.Key", "first"),
        ("app.settings.other", ""),
        ("app.settings.my_key", "three"),
    )
    assert "first" not in repr(loaded)
    [message] = errors_of(MINIMAL + "app.settings.a-b = secret\n")
    assert message.startswith("test.ini: [project] app.settings.a-b: expected a name")


@given(st.dictionaries(st.text(min_size=1, max_size=30).map("DATAAPI_".__add__), st.text(max_size=30)))
def test_each_unknown_variable_is_one_error(environ: dict[str, str]) -> None:
    contents = {
        variable_name(section, key)
        for section in ("dataapi", "project", "webhooks")
        for key in (SERVICE | PROJECT | WEBHOOKS)
    }
    environ = {name: value for name, value in environ.items() if name not in contents}
    if not environ:
        return
    with pytest.raises(ConfigurationError) as caught:
        read(environ=environ)
    assert [error.origin for error in caught.value.mistakes] == [
        f"environment {name}" for name in sorted(environ)
    ]
    assert all(error.value is None for error in caught.value.mistakes)


@given(st.text())
def test_any_invalid_file_raises_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read("[project]\n" + text)
    assert caught.value.mistakes


@given(st.sampled_from(sorted(PROJECT)), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_value_of_any_key_is_read_or_rejected(key: str, value: str) -> None:
    try:
        settings = read(environ={variable_name("project", key): value})
    except ConfigurationError as error:
        assert {error.key for error in error.mistakes} <= {key, "db-uri", "require-api-key"}  # noqa: PT017
    else:
        [loaded] = settings.projects
        default = Project("abcdefghijklmnopqrst", "default", URI, jwt_secret=SECRET)
        changed = {
            field.name
            for field in dataclasses.fields(Project)
            if getattr(loaded, field.name) != getattr(default, field.name)
        }
        assert changed <= {key.replace("-", "_")}


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\n\\,"), min_size=1)
        .map(str.strip)
        .filter(bool),
        min_size=1,
    )
)
def test_accepted_endpoints_are_valid_for_twisted(paths: list[str]) -> None:
    from dataapi.service.configuration.endpoints import check_endpoint  # noqa: PLC0415
    from dataapi.service.configuration.parsers import InvalidValue  # noqa: PLC0415
    from twisted.internet.endpoints import _parse, quoteStringArgument  # noqa: PLC0415

    for path in paths:
        quoted = "unix:" + quoteStringArgument(path)
        if "=" not in path:
            assert check_endpoint(quoted) == quoted
        try:
            check_endpoint("unix:" + path)
        except InvalidValue:
            continue
        arguments, options = _parse("unix:" + path)
        assert len(arguments) + len(options) >= 2


@pytest.mark.parametrize(
    ("text", "environ", "webhooks"),
    [
        ("", {}, None),
        ("[webhooks]\n", {}, Webhooks()),
        ("", {"DATAAPI_WEBHOOKS_TIMEOUT": "5"}, Webhooks(timeout=5.0)),
    ],
)
def test_webhooks_are_enabled_by_their_section(
    text: str, environ: dict[str, str], webhooks: Webhooks | None
) -> None:
    assert read(MINIMAL + text, environ).webhooks == webhooks


def test_encryption_keys_are_32_bytes_in_base64() -> None:
    keys = [base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2)]
    text = f"{MINIMAL}[webhooks]\nencryption-key = {keys[0]},\n  {keys[1]}\n"
    assert read(text).webhooks == Webhooks(encryption_key=tuple(keys))
    assert keys[0] not in repr(read(text))
    for wrong, expected in (("short", "not base64"), (f"{keys[0]}, c2hvcnQ=", "key 2 is 5 bytes")):
        [error] = errors_of(f"{MINIMAL}[webhooks]\nencryption-key = {wrong}\n")
        assert expected in error
        assert wrong not in error


NOTIFIED = f"{MINIMAL}[webhooks]\n"
ORDERS = "channel = orders\nevent-type = v1.shop.order\norganization = acme\n"


def test_channels_are_read() -> None:
    text = f"""{NOTIFIED}[notify]
        {ORDERS.replace(chr(10), chr(10) + 8 * " ")}
        [notify:stock2]
        db-uri = {URI}2
        channel = Stock "level"
        event-type = v1.shop.stock
        organization-member = tenant
        project-member = project
    """
    text = re.sub("^ +", "", text, flags=re.MULTILINE)
    assert read(text).notify == (
        NotifyChannel("notify", URI, "orders", "v1.shop.order", organization="acme"),
        NotifyChannel(
            "notify:stock2", f"{URI}2", 'Stock "level"', "v1.shop.stock",
            organization_member="tenant", project_member="project",
        ),
    )  # fmt: skip
    assert read(text).notify_types == ("v1.shop.order", "v1.shop.stock")
    assert "hunter2" not in repr(read(text).notify)
    assert read().notify == ()


def test_environment_configures_channels() -> None:
    environ = {
        "DATAAPI_NOTIFY_DB_URI": f"{URI}1",
        "DATAAPI_NOTIFY_CHANNEL": "orders",
        "DATAAPI_NOTIFY_EVENT_TYPE": "v1.shop.order",
        "DATAAPI_NOTIFY_ORGANIZATION_MEMBER": "tenant",
        "DATAAPI_NOTIFY_STOCK_DB_URI": f"{URI}2",
        "DATAAPI_NOTIFY_STOCK_CHANNEL": "stock",
        "DATAAPI_NOTIFY_STOCK_EVENT_TYPE": "v1.shop.stock",
        "DATAAPI_NOTIFY_STOCK_ORGANIZATION": "acme",
    }
    assert variable_name("notify:stock", "db-uri") == "DATAAPI_NOTIFY_STOCK_DB_URI"
    assert read(NOTIFIED, environ).notify == (
        NotifyChannel("notify", f"{URI}1", "orders", "v1.shop.order", organization_member="tenant"),
        NotifyChannel("notify:stock", f"{URI}2", "stock", "v1.shop.stock", organization="acme"),
    )
    [error] = errors_of(NOTIFIED, {"DATAAPI_NOTIFY_STOCK_CHANEL": "x"})
    assert error.startswith("environment DATAAPI_NOTIFY_STOCK_CHANEL: no such key")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{NOTIFIED}[notify]\n", "[notify] channel: expected a channel such as orders"),
        (f"{NOTIFIED}[notify]\n", "[notify] event-type: expected a type such as v1.shop.order"),
        (
            f"{NOTIFIED}[notify]\n",
            "[notify] organization: expected either organization or organization-member",
        ),
        (
            f"{NOTIFIED}[notify:a]\n{ORDERS}organization-member = tenant",
            "[notify:a] organization: expected either organization or organization-member",
        ),
        (
            f"{NOTIFIED}[notify:a]\n{ORDERS}project = {20 * 'p'}\nproject-member = p",
            "[notify:a] project: expected either project or project-member, not both",
        ),
        (f"{NOTIFIED}[notify:A-b]\n{ORDERS}", "[notify:A-b]: expected letters a-z and digits after [notify:"),
        (
            f"{NOTIFIED}[notify]\n{ORDERS}".replace("= orders", "= " + "o" * 64),
            "expected the name of a channel, of at most 63 bytes",
        ),
        (
            f"{NOTIFIED}[notify]\n{ORDERS}".replace("v1.shop.order", "shop.order"),
            "expected an event type such as v1.shop.order",
        ),
        (f"{NOTIFIED}[notify]\n{ORDERS}db-url = x", "no such key; did you mean db-uri?"),
        (f"{NOTIFIED}[webhooks:a]\n", "[webhooks:a]: no such section"),
        (
            f"{MINIMAL}[notify]\n{ORDERS}",
            "[webhooks]: expected this section, because [notify] publishes webhook events",
        ),
    ],
)
def test_invalid_channels_are_rejected(text: str, expected: str) -> None:
    assert any(expected in error for error in errors_of(text)), errors_of(text)


def test_channels_require_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "txpostgres", None)
    assert read(NOTIFIED).notify == ()
    [error] = errors_of(f"{NOTIFIED}[notify]\n{ORDERS}")
    assert error.endswith("[notify]: expected the extra notify: pip install 'dataapi-daemon[notify]'")
