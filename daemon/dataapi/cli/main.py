"""The operator's command line, ``dataapi``. ``dataapi.cli.status`` lists its exit statuses."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from http.client import HTTPException
from itertools import zip_longest
from pathlib import Path
from typing import NoReturn, TextIO, TypeVar
from urllib.parse import quote

from dataapi.advisor.checks import without
from dataapi.auth.keys import CannotSign, new_publishable_key, new_secret, new_secret_key, sign
from dataapi.catalog.model import Catalog
from dataapi.catalog.names import CatalogNames
from dataapi.cli import advise, init, webhooks
from dataapi.cli.admin_client import admin_address, send_request
from dataapi.cli.examples import add_examples
from dataapi.cli.status import FINDINGS, INTERRUPTED, Failed, status_of_sqlstate
from dataapi.cli.tables import TextTable, show
from dataapi.database.script import ScriptError
from dataapi.graphql.schema.role_schema import RoleSchema, catalog_view, schema_text
from dataapi.rest.openapi.description import description_text
from dataapi.rest.typescript import database_types
from dataapi.service.configuration import ConfigurationError, load, postgrest
from dataapi.service.configuration.sources import read_text
from dataapi.service.database_settings import with_database_settings
from dataapi.service.inspection import (
    inspect,
    inspect_documents,
    inspect_service,
    read_advice,
    read_catalog,
)
from dataapi.service.private_files import create_private
from dataapi.settings import Project, Settings
from dataapi.telemetry.readiness import DaemonState, ProjectState, state_from_json
from dataapi.telemetry.version import installed_version, version_row
from dataapi.webhooks.secrets import new_key

T = TypeVar("T")

_REQUEST_TIMEOUT = 5.0
"""Timeout of requests to the admin listener, in seconds."""
_RELOAD_TIMEOUT = 75.0
"""Timeout of a reload in seconds, shorter than systemd's."""

_ABOUT_NEW_KEYS = """\
; New keys. Copy these lines to [project] and [webhooks]. To keep a secret in a file, write
; the value to the file and refer to it: jwt-secret = @/path
; Run "dataapi keys" again to print API keys in JWT form, signed with jwt-secret."""


def main() -> None:
    try:
        status = run(sys.argv[1:], os.environ, sys.stdout, sys.stderr)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"dataapi: the output cannot be written: {error.strerror}\n")
        # Otherwise the interpreter would try to flush the output again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = os.EX_IOERR
    sys.exit(status)


def run(arguments: Sequence[str], environ: Mapping[str, str], output: TextIO, errors: TextIO) -> int:
    """Run a command line and return the exit status.

    :raises SystemExit: raised by argparse for an invalid command line and after ``--help``.
    """
    options = command_line_parser().parse_args(arguments)
    command = Command(options, environ, output, errors)
    subcommand: Callable[[Command], int] = options.subcommand
    try:
        return subcommand(command)
    except ConfigurationError as error:
        print(error, file=errors)
        return os.EX_CONFIG
    except Failed as error:
        print(error, file=errors)
        return error.status


class _CommandLineParser(argparse.ArgumentParser):
    """An argument parser that exits with a status of ``sysexits.h``."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(os.EX_USAGE, f"{self.prog}: {message}\n")


def command_line_parser() -> argparse.ArgumentParser:
    common = _CommandLineParser(add_help=False)
    common.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="configuration file (default: ./dataapi.ini or /etc/dataapi/dataapi.ini)",
    )
    parser = _CommandLineParser(
        prog="dataapi",
        description="Set up, check and operate the dataapi daemon. Start the daemon with: twistd dataapi",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"dataapi {installed_version()}",
        help="print the installed version",
    )
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    init.add(subcommands).set_defaults(subcommand=Command.init)
    parsers = {}
    for subcommand in (
        Command.check_config,
        Command.keys,
        Command.ready,
        Command.reload,
        Command.schema,
        Command.types,
        Command.version,
    ):
        name = subcommand.__name__.replace("_", "-")
        summary = (subcommand.__doc__ or "").partition("\n")[0]
        parsers[name] = subcommands.add_parser(name, parents=[common], help=summary, description=summary)
        parsers[name].set_defaults(subcommand=subcommand)
    parsers["check-config"].add_argument(
        "--offline",
        action="store_true",
        help="check only the configuration, without connecting to the database",
    )
    advise.add(subcommands, common).set_defaults(subcommand=Command.advise)
    parsers["ready"].add_argument("--project", metavar="REF", help="check only this project")
    webhooks.add(subcommands, common, Command.webhooks)
    migrate = subcommands.add_parser(
        "migrate-config",
        help="Convert a PostgREST configuration.",
        description="Convert a PostgREST configuration (a file and PGRST_* variables) and print the result.",
    )
    migrate.set_defaults(subcommand=Command.migrate_config)
    migrate.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="PostgREST's file (default: only PGRST_* variables)",
    )
    migrate.add_argument(
        "--output", metavar="FILE", type=Path, help="create this file (mode 600) instead of printing"
    )
    schema = parsers["schema"]
    schema.add_argument(
        "--role",
        metavar="ROLE",
        required=True,
        help="role whose schema is printed, such as anon",
    )
    schema.add_argument(
        "--format",
        choices=["sdl", "openapi"],
        default="sdl",
        help="sdl: GraphQL schema; openapi: OpenAPI 3.1 of the first database schema (default: sdl)",
    )
    types = parsers["types"]
    types.add_argument(
        "--role",
        metavar="ROLE",
        required=True,
        help="role to generate types for, such as authenticated",
    )
    types.add_argument(
        "--schema",
        metavar="SCHEMA",
        action="append",
        help="schema to include (repeatable; default: all of db-schemas)",
    )
    types.add_argument(
        "--check",
        metavar="FILE",
        type=Path,
        help="print nothing, and fail if this file differs from the types",
    )
    for parser_of_project in (schema, types):
        parser_of_project.add_argument(
            "--project", metavar="REF", help="project (required if there are several)"
        )
    add_examples(parser)
    return parser


class Command:
    """The subcommands, with their options, environment and output streams."""

    def __init__(
        self, options: argparse.Namespace, environ: Mapping[str, str], output: TextIO, errors: TextIO
    ) -> None:
        self._options = options
        self._environ = environ
        self._output = output
        self._errors = errors

    def check_config(self) -> int:
        """Report all problems in the configuration and its databases."""
        settings = self._load() if self._options.offline else self._complete()
        inspect_project = inspect_documents if self._options.offline else inspect
        findings = [
            *inspect_service(settings),
            *(finding for project in settings.projects for finding in inspect_project(project)),
        ]
        if findings and self._errors.isatty():
            rows = [
                (finding.severity.name.lower(), finding.project or "-", finding.text) for finding in findings
            ]
            show(TextTable(("SEVERITY", "PROJECT", "FINDING"), rows, state=0), self._errors, self._environ)
        else:
            self._errors.writelines(f"{finding}\n" for finding in findings)
        if wrong := [finding for finding in findings if finding.wrong]:
            return os.EX_CONFIG if any(finding.checked for finding in wrong) else os.EX_UNAVAILABLE
        count = len(settings.projects)
        source = settings.file or "the environment"
        self._print(f"{source}: the configuration is valid; {count} project{'s' if count != 1 else ''}")
        return os.EX_OK

    def advise(self) -> int:
        """Report risks and performance problems in the schema."""
        found = without(_read(self._project(), read_advice), self._options.ignore)
        self._output.writelines(f"{line}\n" for line in advise.lines(found, self._options.format))
        return FINDINGS if found else os.EX_OK

    def keys(self) -> int:
        """Print API keys, or create keys for a configuration that has none."""
        try:
            settings = self._complete()
        except ConfigurationError as error:
            if not all(mistake.lacks for mistake in error.mistakes):
                raise
            for mistake in error.mistakes:
                if mistake.key in mistake.lacks:
                    print(mistake, file=self._errors)
            self._print(_new_keys({key for mistake in error.mistakes for key in mistake.lacks}))
            return os.EX_OK
        failures = list(
            filter(None, [self._project_keys(settings, project) for project in settings.projects])
        )
        if settings.webhooks is None or not settings.webhooks.encryption_key:
            self._print(
                f"; a new key for [webhooks], which has no encryption-key\nencryption-key = {new_key()}"
            )
        if failures:
            raise Failed(os.EX_CONFIG, "\n".join(failures))
        return os.EX_OK

    def ready(self) -> int:
        """Check the running daemon. The exit status is 0 if the daemon can serve requests."""
        ref = self._options.project
        status, body = self._request_daemon(f"/ready?project={quote(ref)}" if ref else "/ready")
        state = _state(body)
        if state is not None and self._output.isatty():
            show(_readiness(state), self._output, self._environ)
        else:
            self._output.write(body)
        if status == 404 and ref:
            raise Failed(os.EX_USAGE, f"the daemon has no project {ref}")
        if state is None:
            raise Failed(os.EX_UNAVAILABLE, f"the daemon responded with status {status}")
        if status != 200:
            raise Failed(os.EX_TEMPFAIL, f"the daemon is {state.summary}")
        return os.EX_OK

    def reload(self) -> int:
        """Reload the configuration, secrets and schemas of the running daemon, and report problems."""
        status, body = self._request_daemon("/reload", _RELOAD_TIMEOUT, b"")
        if status == 200:
            return os.EX_OK
        try:
            failures = dict(json.loads(body)["failures"])
        except (ValueError, LookupError):
            raise Failed(
                os.EX_UNAVAILABLE, f"the daemon responded with status {status}: {body.strip()}"
            ) from None
        configuration_failed = "configuration" in failures
        reasons = [f"{part}: {reason}" for part, reason in failures.items()]
        raise Failed(os.EX_CONFIG if configuration_failed else os.EX_TEMPFAIL, "\n".join(reasons))

    def version(self) -> int:
        """Print the installed version and the version of the running daemon, as JSON."""
        try:
            _, body = self._request_daemon("/version")
        except (ConfigurationError, Failed):
            body = json.dumps(version_row(None)) + "\n"
        self._output.write(body)
        return os.EX_OK

    def _request_daemon(
        self, path: str, timeout: float = _REQUEST_TIMEOUT, body: bytes | None = None
    ) -> tuple[int, str]:
        """Return the status and body of a response from the admin listener. Raises ``Failed``."""
        address = admin_address(self._load().admin_listen)
        if address is None:
            raise Failed(os.EX_CONFIG, "admin-listen has no TCP or unix endpoint to reach the daemon")
        try:
            return send_request(address, path, timeout, body)
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or error
            text = f"the daemon does not respond at {address} (admin-listen): {reason}"
            raise Failed(os.EX_UNAVAILABLE, text) from error

    def _project_keys(self, settings: Settings, project: Project) -> str | None:
        if len(settings.projects) > 1:
            self._print(f"; project {project.ref}")
        now = int(time.time())
        try:
            for role in filter(None, (project.db_anon_role, "service_role")):
                self._print(f"{role} {sign(project, role, now)}")
        except CannotSign as error:
            return f"project {project.ref}: {error}"
        return None

    def schema(self) -> int:
        """Print the GraphQL schema or the OpenAPI description of a role."""
        project, role = self._project(), self._options.role
        catalog = self._catalog(project)
        if self._options.format == "openapi":
            self._print(description_text(project, catalog, role))
            return os.EX_OK
        names = CatalogNames(catalog)
        self._output.write(schema_text(RoleSchema(catalog_view(catalog, names, role, project))))
        return os.EX_OK

    def types(self) -> int:
        """Print the REST API's TypeScript types for a role, for supabase-js and postgrest-js."""
        project, role, checked = self._project(), self._options.role, self._options.check
        schemas = self._options.schema or project.db_schemas
        for name in schemas:
            if name not in project.db_schemas:
                raise Failed(os.EX_USAGE, f"--schema: expected one of {', '.join(project.db_schemas)}")
        text = database_types(self._catalog(project), role, schemas)
        if checked is None:
            self._output.write(text)
            return os.EX_OK
        try:
            found = checked.read_text("utf-8", errors="replace")
        except OSError as error:
            raise Failed(os.EX_NOINPUT, f"{checked} cannot be read: {error.strerror}") from error
        line = _first_difference(found.split("\n"), text.split("\n"))
        if line is not None:
            problem = f"{checked}, line {line}: the file differs from the types of role {role}"
            raise Failed(os.EX_DATAERR, f"{problem}: update it with dataapi types")
        return os.EX_OK

    def migrate_config(self) -> int:
        """Convert a PostgREST configuration, and report keys and values that cannot be converted."""
        source, target = self._options.file, self._options.output
        try:
            text = read_text(source, Path.read_bytes) if source else ""
            migration = postgrest.migrate(text, self._environ, Path.cwd())
        except ValueError as error:
            unreadable = isinstance(error.__cause__, OSError)
            raise Failed(os.EX_NOINPUT if unreadable else os.EX_DATAERR, f"{source}: {error}") from error
        for note in migration.notes:
            print(note, file=self._errors)
        if target is None:
            self._output.write(migration.text)
        else:
            try:
                create_private(target, migration.text)
            except OSError as error:
                raise Failed(os.EX_CANTCREAT, f"{target} cannot be written: {error.strerror}") from error
        return os.EX_OK

    def init(self) -> int:
        prompt_input = sys.stdin if sys.stdin.isatty() else None
        init.Init(self._options, self._output, self._errors, prompt_input).run()
        return os.EX_OK

    def webhooks(self) -> int:
        result = webhooks.execute(self._load(), self._options, self._errors)
        if isinstance(result, TextTable):
            show(result, self._output, self._environ)
        else:
            self._output.writelines(f"{line}\n" for line in result)
        return os.EX_OK

    def _project(self) -> Project:
        projects = {project.ref: project for project in self._complete().projects}
        requested = self._options.project or (next(iter(projects)) if len(projects) == 1 else None)
        if requested not in projects:
            raise Failed(os.EX_USAGE, f"--project: expected one of {', '.join(projects)}")
        return projects[requested]

    def _catalog(self, project: Project) -> Catalog:
        role = self._options.role
        catalog = _read(project, read_catalog)
        if role not in catalog.roles:
            reason = f"role {role} does not exist, or the login role of db-uri is not a member of it"
            raise Failed(os.EX_DATAERR, f"project {project.ref}: {reason}")
        return catalog

    def _load(self) -> Settings:
        return load(self._options.config, self._environ)

    def _complete(self) -> Settings:
        return with_database_settings(self._load())

    def _print(self, text: str) -> None:
        print(text, file=self._output)


def _read(project: Project, read: Callable[[Project], T]) -> T:
    try:
        return read(project)
    except ScriptError as error:
        reason = f"the database cannot be read: {' '.join(str(error).split())}"
        raise Failed(status_of_sqlstate(error.sqlstate), f"project {project.ref}: {reason}") from error


def _first_difference(found: Sequence[str], expected: Sequence[str]) -> int | None:
    pairs = enumerate(zip_longest(found, expected), 1)
    return next((number for number, (one, other) in pairs if one != other), None)


def _state(body: str) -> DaemonState | None:
    try:
        return state_from_json(json.loads(body))
    except (ValueError, LookupError, TypeError):
        return None


def _readiness(state: DaemonState) -> TextTable:
    rows = [
        (
            project.ref,
            "available" if project.database_available else "unavailable",
            str(project.generation or "-"),
            _project_status(project),
        )
        for project in state.projects
    ]
    if (webhooks := state.webhooks) is not None:
        status = "ready" if webhooks.ready else f"not ready: {webhooks.reason}"
        rows.append(("webhooks", "available" if webhooks.database_available else "unavailable", "-", status))
    return TextTable(("PROJECT", "DATABASE", "CATALOG", "STATE"), rows)


def _project_status(project: ProjectState) -> str:
    if not project.ready:
        return f"not ready: {project.reason}"
    return "ready" if project.writes else "ready for reads"


def _new_keys(lacking: Collection[str]) -> str:
    project = {
        "jwt-secret": new_secret,
        "publishable-keys": new_publishable_key,
        "secret-keys": new_secret_key,
    }
    lines = [f"{key} = {make(secrets.token_urlsafe)}" for key, make in project.items() if key in lacking]
    if "encryption-key" in lacking:
        lines += ["[webhooks]", f"encryption-key = {new_key()}"]
    return "\n".join([_ABOUT_NEW_KEYS, *lines])


if __name__ == "__main__":
    main()
