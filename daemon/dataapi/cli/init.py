"""``dataapi init``: sets up a database for the daemon, and writes its configuration."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote, urlencode

from dataapi.auth.keys import new_publishable_key, new_secret, new_secret_key
from dataapi.cli.status import DECLINED, Failed, status_of_sqlstate
from dataapi.database.address import connection_parameters, is_connection_string
from dataapi.database.script import ScriptError, connected
from dataapi.service.private_files import create_private
from dataapi.service.provisioning import (
    LOGIN_ROLE,
    Provision,
    Secrets,
    configuration_files,
    parse_access,
    removal_sql,
    scram_verifier,
    setup_sql,
)
from dataapi.webhooks.secrets import new_key

_EVENT_TRIGGERS = (
    "select count(*) from pg_catalog.pg_event_trigger where evtname in ('dataapi_ddl', 'dataapi_drop')"
)
_READABLE_TABLE = """
select c.relname from pg_catalog.pg_class c
where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'v', 'm', 'f', 'p')
  and has_table_privilege($2::text, c.oid, 'select')
order by 1 limit 1
"""

_CONNECTION_OPTIONS: tuple[str, ...] = ("sslmode", "sslrootcert", "target_session_attrs")


def add(subcommands: Any) -> argparse.ArgumentParser:
    summary = "Prepare a database for the daemon and write the configuration."
    parser: argparse.ArgumentParser = subcommands.add_parser("init", help=summary, description=summary)
    parser.add_argument(
        "uri",
        metavar="URI",
        nargs="?",
        help="connection string of an administrator, such as postgresql://postgres@127.0.0.1/app",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=Path("dataapi.ini"),
        help="configuration file to create, with its secrets in the same folder (default: %(default)s)",
    )
    parser.add_argument(
        "--db-uri",
        metavar="URI",
        help="connection string of the daemon (default: the host and database of URI)",
    )
    parser.add_argument(
        "--schema",
        metavar="SCHEMA",
        action="append",
        help="database schema to expose (repeatable; default: public)",
    )
    access = "nothing, read (all present and future tables), or comma-separated tables (default: nothing)"
    for role in ("anon", "authenticated"):
        parser.add_argument(
            f"--{role}",
            type=parse_access,
            default="nothing",
            metavar="ACCESS",
            help=f"access of the role {role}: {access}",
        )
    parser.add_argument("--webhooks", action="store_true", help="also set up webhooks")
    parser.add_argument(
        "--no-event-trigger",
        action="store_true",
        help="do not create the event trigger that announces new tables: run NOTIFY pgrst yourself",
    )
    parser.add_argument("--print", action="store_true", help="print the SQL instead of running it")
    parser.add_argument("--yes", action="store_true", help="run the SQL without confirmation")
    parser.add_argument(
        "--remove",
        action="store_true",
        help="remove the roles, their privileges and, with --webhooks, the schema webhooks; keep all files",
    )
    return parser


class Init:
    """Runs ``dataapi init``. There are no prompts without a terminal."""

    def __init__(
        self, options: argparse.Namespace, output: TextIO, errors: TextIO, prompt_input: TextIO | None
    ) -> None:
        self._options = options
        self._output = output
        self._errors = errors
        self._input = prompt_input

    def run(self) -> None:
        options = self._options
        if not options.print and options.uri is None:
            options.uri = self._prompt("PostgreSQL URI of an administrator: ")
            if not options.uri:
                raise _failed(
                    os.EX_USAGE, "the URI of an administrator is missing: dataapi init postgresql://…"
                )
        for uri in filter(None, (options.uri, options.db_uri)):
            if not is_connection_string(uri):
                raise _failed(
                    os.EX_USAGE,
                    f"{uri.partition('@')[2] or uri} is not a URI such as postgresql://host/database",
                )
        if options.remove:
            self._apply(removal_sql(webhooks=options.webhooks))
        else:
            self._set_up()

    def _set_up(self) -> None:
        options = self._options
        config = options.config.absolute()
        provision = Provision(
            tuple(options.schema or ("public",)),
            {"anon": options.anon, "authenticated": options.authenticated},
            webhooks=options.webhooks,
            event_trigger=not options.no_event_trigger,
        )
        new_secrets, files = None, {}
        if config.exists():
            self._note(f"{config} already exists; this file and the password of {LOGIN_ROLE} are kept")
        else:
            password = secrets.token_urlsafe(24)
            provision = replace(provision, verifier=scram_verifier(password, secrets.token_bytes(16)))
            new_secrets = Secrets(
                {
                    "db-uri": _login_uri(options.uri, options.db_uri, password),
                    "jwt-secret": new_secret(secrets.token_urlsafe),
                    "publishable-keys": new_publishable_key(secrets.token_urlsafe),
                    "secret-keys": new_secret_key(secrets.token_urlsafe),
                },
                {"encryption-key": new_key()},
            )
            files = configuration_files(provision, new_secrets, config)
            if existing := list(filter(os.path.lexists, files)):
                raise _failed(
                    os.EX_CANTCREAT,
                    f"{existing[0]} already exists, and secrets are only written to new files: remove it, or"
                    f" choose another configuration file with --config; nothing was changed",
                )
        self._apply(setup_sql(provision))
        if new_secrets is None:
            return
        try:
            for path, text in files.items():
                create_private(path, text)
        except OSError as error:
            reason = f"the database is set up, but {error.filename}: {error.strerror}"
            raise _failed(os.EX_CANTCREAT, reason) from error
        self._note(f"wrote {config} and {config.with_suffix('.secrets')}/")
        if options.print:
            self._note(f"run the SQL, then start the daemon: {_start_command(config)}")
        else:
            self._print_next_steps(provision, new_secrets, config)

    def _apply(self, sql: str) -> None:
        options = self._options
        if options.print:
            self._output.write(sql)
            return
        if not options.yes:
            self._output.write(sql)
            if self._prompt(f"Run this in {_database_location(options.uri)}? [y/N] ").lower() not in (
                "y",
                "yes",
            ):
                raise _failed(
                    os.EX_USAGE if self._input is None else DECLINED,
                    "nothing was changed; --yes skips the confirmation, --print only prints the SQL",
                )
        try:
            with connected(options.uri) as fetch:
                fetch(sql, ())
        except ScriptError as error:
            reason = f"nothing was changed: {' '.join(str(error).split())}"
            raise _failed(status_of_sqlstate(error.sqlstate), reason) from error

    def _print_next_steps(self, provision: Provision, new_secrets: Secrets, config: Path) -> None:
        project = new_secrets.project
        try:
            with connected(project["db-uri"]) as fetch:
                [(triggers,)] = fetch(_EVENT_TRIGGERS, ())
                anonymous = fetch(_READABLE_TABLE, (provision.schemas[0], "anon"))
                table = anonymous or fetch(_READABLE_TABLE, (provision.schemas[0], "service_role"))
        except ScriptError as error:
            reason = " ".join(str(error).split())
            raise _failed(
                status_of_sqlstate(error.sqlstate),
                f"the database is set up, but {LOGIN_ROLE} cannot log in: {reason}; see pg_hba.conf, or"
                f" remove {config} and {config.with_suffix('.secrets')}/, and pass --db-uri",
            ) from error
        if not triggers:
            self._note("no event trigger: run notify pgrst, 'reload schema' after creating tables")
        key = project["publishable-keys" if anonymous else "secret-keys"]
        self._output.write(
            f"\nKeys\n  anon          {project['publishable-keys']}\n"
            f"  service_role  {project['secret-keys']}\n"
            f"\nNext\n  {_start_command(config)}\n"
        )
        if table:
            name = quote(table[0][0])
            self._output.write(f"  curl 'http://127.0.0.1:8000/rest/v1/{name}?limit=3' -H 'apikey: {key}'\n")

    def _prompt(self, question: str) -> str:
        if self._input is None:
            return ""
        self._output.write(question)
        self._output.flush()
        return self._input.readline().strip()

    def _note(self, text: str) -> None:
        print(f"init: {text}", file=self._errors)


def _failed(status: int, reason: str) -> Failed:
    return Failed(status, f"init: {reason}")


def _start_command(config: Path) -> str:
    return f"twistd --nodaemon --pidfile= dataapi --config {config}"


def _login_uri(administrator: str | None, uri: str | None, password: str) -> str:
    """Return the connection string of the daemon, with its password.

    It is derived from ``uri`` or, if that is None, from the administrator's connection string.
    """
    parameters = connection_parameters(uri or administrator or "postgresql://")
    host = parameters.get("host", "")
    if not uri and (not host or host.startswith("/")):
        # On a local socket, most servers use peer authentication and ignore the password.
        host = "127.0.0.1"
    query = {name: parameters[name] for name in _CONNECTION_OPTIONS if name in parameters}
    if host.startswith("/"):
        query["host"], host = host, ""
    port = f":{parameters['port']}" if parameters.get("port") else ""
    database = quote(parameters.get("dbname") or parameters.get("user") or "postgres", safe="")
    options = f"?{urlencode(query)}" if query else ""
    return f"postgresql://{LOGIN_ROLE}:{password}@{host}{port}/{database}{options}"


def _database_location(uri: str) -> str:
    parameters: Mapping[str, str] = connection_parameters(uri)
    database = parameters.get("dbname") or parameters.get("user") or "the default database"
    return f"{database} at {parameters.get('host') or 'the local socket'}"
