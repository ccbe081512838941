"""The operator's command line, ``dataapi``.

Exit codes: 0 all is well, 1 there is a problem, 2 the command line is invalid.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TextIO
from urllib.error import HTTPError
from urllib.parse import quote

from dataapi.auth.keys import CannotSign, new_publishable_key, new_secret, new_secret_key, sign
from dataapi.catalog.names import CatalogNames
from dataapi.cli import init, webhooks
from dataapi.database.script import ScriptError
from dataapi.graphql.schema.role_schema import RoleSchema, catalog_view, schema_text
from dataapi.rest.openapi.description import description_text
from dataapi.service.configuration import ConfigurationError, load, postgrest
from dataapi.service.configuration.endpoints import http_address
from dataapi.service.configuration.sources import read_text
from dataapi.service.database_settings import with_database_settings
from dataapi.service.inspection import inspect, inspect_documents, inspect_service, read_catalog
from dataapi.service.private_files import create_private
from dataapi.settings import Project, Settings
from dataapi.telemetry.version import installed_version, version_row
from dataapi.webhooks.secrets import new_key

_ANSWER_WITHIN = 5.0
"""Seconds that the admin listener may take to answer."""
_RELOADED_WITHIN = 75.0
"""Seconds that a reload may take, less than systemd waits for one."""

_ABOUT_NEW_KEYS = """\
; New keys.  Copy these lines into [project] and [webhooks].  A secret is better kept in a
; file that holds what is right of the sign =, and named: jwt-secret = @/path
; Afterwards "dataapi keys" prints keys in JWT form, signed with jwt-secret."""


def main() -> None:
    """Run the command and exit; the entry point of the console script."""
    sys.exit(run(sys.argv[1:], os.environ, sys.stdout, sys.stderr))


def run(arguments: Sequence[str], environ: Mapping[str, str], output: TextIO, errors: TextIO) -> int:
    """Carry out a command line and return the exit code.

    :raises SystemExit: by argparse, with 2 when the command line is not understood and 0 after help.
    """
    chosen = command_line_parser().parse_args(arguments)
    command = Command(chosen, environ, output, errors)
    subcommand: Callable[[Command], int] = chosen.subcommand
    try:
        return subcommand(command)
    except ConfigurationError as error:
        print(error, file=errors)
        return 1


def command_line_parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="the configuration (else ./dataapi.ini, then /etc/dataapi/dataapi.ini)",
    )
    parser = argparse.ArgumentParser(prog="dataapi", description="Operate the daemon dataapi.")
    parser.add_argument("--version", action="version", version=f"dataapi {installed_version()}")
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    added = {}
    for subcommand in (
        Command.check_config,
        Command.keys,
        Command.ready,
        Command.reload,
        Command.schema,
        Command.version,
    ):
        name = subcommand.__name__.replace("_", "-")
        summary = (subcommand.__doc__ or "").partition("\n")[0]
        added[name] = subcommands.add_parser(name, parents=[common], help=summary, description=summary)
        added[name].set_defaults(subcommand=subcommand)
    added["check-config"].add_argument(
        "--offline", action="store_true", help="leave the database out, where it cannot be reached"
    )
    added["ready"].add_argument("--project", metavar="REF", help="ask for this project, not for any")
    init.add(subcommands).set_defaults(subcommand=Command.init)
    webhooks.add(subcommands, common, Command.webhooks)
    migrate = subcommands.add_parser(
        "migrate-config",
        help="Translate PostgREST's configuration into ours.",
        description="Translate PostgREST's configuration, of a file and PGRST_*, into ours, and print it.",
    )
    migrate.set_defaults(subcommand=Command.migrate_config)
    migrate.add_argument("file", metavar="FILE", nargs="?", type=Path, help="without it, PGRST_* alone")
    migrate.add_argument(
        "--output", metavar="FILE", type=Path, help="write this new file (mode 600) instead of printing"
    )
    schema = added["schema"]
    schema.add_argument(
        "--role", required=True, help="the role whose view of the database it is, such as anon"
    )
    schema.add_argument(
        "--format",
        choices=["sdl", "openapi"],
        default="sdl",
        help="GraphQL's schema definition language, or OpenAPI 3.1 of the first schema",
    )
    schema.add_argument("--project", metavar="REF", help="the project, when there are several")
    return parser


class Command:
    """The subcommands, with what they read and where they write."""

    def __init__(
        self, options: argparse.Namespace, environ: Mapping[str, str], output: TextIO, errors: TextIO
    ) -> None:
        self._options = options
        self._environ = environ
        self._output = output
        self._errors = errors

    def check_config(self) -> int:
        """List every mistake in the configuration, and what in the database does not fit it."""
        settings = self._load() if self._options.offline else self._complete()
        look = inspect_documents if self._options.offline else inspect
        findings = [
            *inspect_service(settings),
            *(finding for project in settings.projects for finding in look(project)),
        ]
        for finding in findings:
            print(finding, file=self._errors)
        if any(finding.wrong for finding in findings):
            return 1
        count = len(settings.projects)
        source = settings.file or "the environment"
        self._say(f"{source}: the configuration is good; {count} project{'s' if count != 1 else ''}")
        return 0

    def keys(self) -> int:
        """Print API keys signed with jwt-secret, or new keys for a configuration that has none."""
        try:
            settings = self._complete()
        except ConfigurationError as error:
            if not all(mistake.lacks for mistake in error.mistakes):
                raise
            for mistake in error.mistakes:
                if mistake.key in mistake.lacks:
                    print(mistake, file=self._errors)
            self._say(_new_keys({key for mistake in error.mistakes for key in mistake.lacks}))
            return 0
        code = max([self._project_keys(settings, project) for project in settings.projects])
        if settings.webhooks is None or not settings.webhooks.encryption_key:
            self._say(f"; a new key for [webhooks], which has none\nencryption-key = {new_key()}")
        return code

    def ready(self) -> int:
        """Ask the running daemon's admin listener for /ready: exit with 0 when it can answer requests."""
        ref = self._options.project
        try:
            status, body = self._ask_daemon(f"/ready?project={quote(ref)}" if ref else "/ready")
        except OSError as error:
            print(f"the daemon does not answer: {error}", file=self._errors)
            return 1
        self._output.write(body)
        return 0 if status == 200 else 1

    def reload(self) -> int:
        """Have the running daemon read configuration, secrets and schemas again; exit with 1 if it cannot."""
        try:
            status, body = self._ask_daemon("/reload", _RELOADED_WITHIN, b"")
        except OSError as error:
            print(f"the daemon does not answer: {error}", file=self._errors)
            return 1
        if status == 200:
            return 0
        try:
            reasons = [f"{place}: {reason}" for place, reason in json.loads(body)["failures"].items()]
        except (ValueError, LookupError):
            reasons = [f"the daemon answers {status}: {body.strip()}"]
        for reason in reasons:
            print(reason, file=self._errors)
        return 1

    def version(self) -> int:
        """Print the version that is installed, and the one that the running daemon has, as JSON."""
        try:
            _, body = self._ask_daemon("/version")
        except (ConfigurationError, OSError):
            body = json.dumps(version_row(None)) + "\n"
        self._output.write(body)
        return 0

    def _ask_daemon(
        self, path: str, within: float = _ANSWER_WITHIN, posted: bytes | None = None
    ) -> tuple[int, str]:
        """Return status and body of the admin listener's answer; raises ``OSError`` without one.

        :param posted: the body of a POST, None to GET.
        """
        address = next(filter(None, map(http_address, self._load().admin_listen)), None)
        if address is None:
            raise OSError("admin-listen has no TCP endpoint that could be asked")
        try:
            with urllib.request.urlopen(f"{address}{path}", posted, within) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def _project_keys(self, settings: Settings, project: Project) -> int:
        if len(settings.projects) > 1:
            self._say(f"; project {project.ref}")
        now = int(time.time())
        try:
            for role in filter(None, (project.db_anon_role, "service_role")):
                self._say(f"{role} {sign(project, role, now)}")
        except CannotSign as error:
            return self._fail(project, str(error))
        return 0

    def schema(self) -> int:
        """Print a role's GraphQL schema, whether or not introspection is on, or its OpenAPI description."""
        project = self._project()
        if project is None:
            return 1
        role = self._options.role
        try:
            catalog = read_catalog(project)
        except ScriptError as error:
            return self._fail(project, f"the database cannot be read: {' '.join(str(error).split())}")
        if role not in catalog.roles:
            return self._fail(project, f"there is no role {role} that the login role of db-uri may become")
        if self._options.format == "openapi":
            self._say(description_text(project, catalog, role))
            return 0
        names = CatalogNames(catalog)
        self._output.write(schema_text(RoleSchema(catalog_view(catalog, names, role, project))))
        return 0

    def migrate_config(self) -> int:
        """Translate PostgREST's configuration, and say what has no counterpart or is no good value."""
        source, target = self._options.file, self._options.output
        try:
            text = read_text(source, Path.read_bytes) if source else ""
            migration = postgrest.migrate(text, self._environ, Path.cwd())
        except ValueError as error:
            print(f"{source}: {error}", file=self._errors)
            return 1
        for note in migration.notes:
            print(note, file=self._errors)
        if target is None:
            self._output.write(migration.text)
        else:
            try:
                create_private(target, migration.text)
            except OSError as error:
                print(f"{target}: {error.strerror}", file=self._errors)
                return 1
        return 0

    def init(self) -> int:
        """Carry out ``dataapi.cli.init``, with questions where somebody sits at a terminal."""
        answers = sys.stdin if sys.stdin.isatty() else None
        return init.Init(self._options, self._output, self._errors, answers).run()

    def webhooks(self) -> int:
        """Carry out a subcommand of ``dataapi.cli.webhooks``."""
        return webhooks.carry_out(self._load(), self._options, self._output, self._errors)

    def _project(self) -> Project | None:
        """Return the project that --project names, or the only one; say so when there is none."""
        projects = {project.ref: project for project in self._complete().projects}
        requested = self._options.project or (next(iter(projects)) if len(projects) == 1 else None)
        if requested not in projects:
            print(f"--project: expected one of {', '.join(projects)}", file=self._errors)
        return projects.get(requested or "")

    def _fail(self, project: Project, reason: str) -> int:
        print(f"project {project.ref}: {reason}", file=self._errors)
        return 1

    def _load(self) -> Settings:
        return load(self._options.config, self._environ)

    def _complete(self) -> Settings:
        """Load the configuration, and with ``db-config`` the settings in the databases."""
        return with_database_settings(self._load())

    def _say(self, text: str) -> None:
        print(text, file=self._output)


def _new_keys(lacking: Collection[str]) -> str:
    """Return lines for a configuration file that give it the keys it lacks."""
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
