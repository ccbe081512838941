"""Where the settings come from: a configuration, the same with an embedded PostgreSQL, or the demo."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from twisted.internet.threads import deferToThread

from dataapi.auth.keys import new_publishable_key, new_secret, new_secret_key, sign
from dataapi.catalog.directives import FEATURES
from dataapi.database.embedded import LOGIN_ROLE, EmbeddedServer, EmbeddedServerError
from dataapi.database.script import ScriptError, run_script
from dataapi.service.configuration.endpoints import http_address
from dataapi.service.sockets import StartFailed
from dataapi.settings import Project, Settings

DEMO_REF = "demodemodemodemodemo"
DEMO_DATABASE = "demo"
SIGNED_IN_ACCOUNT = "1"
"""The account that the demo's user token is for."""

DEMO_QUERY = (
    "{ blogCollection(first: 2) { edges { node { name owner { firstName } "
    "blogPostCollection(orderBy: [{createdAt: DescNullsLast}]) { edges { node { title wordCount } } } } } } }"
)

_SCRIPT = Path(__file__).with_name("demo.sql")

EMBEDDED_URI = "postgresql:///embedded"
"""Placeholder of ``db-uri`` until the embedded server runs."""


class SettingsSource(Protocol):
    """Provides the settings, having started what they need."""

    @property
    def settings(self) -> Settings:
        """What is known before the start."""

    async def prepare(self) -> Settings:
        """Start what the settings need and return them complete; raises ``StartFailed``."""

    async def reread(self) -> Settings | None:
        """Read the settings again; raises ``ConfigurationError``.  None when they come from nowhere else."""

    def announce(self) -> None:
        """Print what the operator should know once requests are answered."""

    async def cleanup(self) -> None:
        """Stop what ``prepare`` started."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration whose databases run elsewhere; ``load`` reads it again and blocks."""

    settings: Settings
    load: Callable[[], Settings]

    async def prepare(self) -> Settings:
        """Return the settings as they are."""
        return self.settings

    async def reread(self) -> Settings | None:
        """Read the configuration again."""
        return await deferToThread(self.load)

    def announce(self) -> None:
        """Print nothing; the log suffices."""

    async def cleanup(self) -> None:
        """Stop nothing."""


@dataclass(frozen=True, slots=True)
class Embedded(Configured):
    """A configuration whose project lives in the embedded PostgreSQL."""

    server: EmbeddedServer

    async def prepare(self) -> Settings:
        """Start the server and point the project at it."""
        try:
            uri = await self.server.start()
        except EmbeddedServerError as error:
            raise StartFailed(f"the embedded PostgreSQL cannot start: {error}") from error
        return _in_server(self.settings, uri)

    async def reread(self) -> Settings | None:
        """Read the configuration again."""
        return _in_server(await deferToThread(self.load), self.server.uri(LOGIN_ROLE))

    async def cleanup(self) -> None:
        """Stop the server."""
        await self.server.stop()


def _in_server(settings: Settings, uri: str) -> Settings:
    """Point the project at the embedded server."""
    return replace(
        settings,
        projects=tuple(
            replace(project, db_uri=uri) if project.db_uri == EMBEDDED_URI else project
            for project in settings.projects
        ),
    )


class DemoSource:
    """A sample database with fresh keys, in an embedded PostgreSQL; ``write`` takes how to try it."""

    def __init__(self, settings: Settings, directory: Path | None, write: Callable[[str], object]) -> None:
        self.settings = settings
        self._directory = directory
        self._write = write
        self._demo: PreparedDemo | None = None

    async def prepare(self) -> Settings:
        """Start the server, make the sample and return the settings with its project."""
        try:
            self._demo = await prepare_demo(self._directory, self.settings)
        except EmbeddedServerError as error:
            raise StartFailed(f"the embedded PostgreSQL cannot start: {error}") from error
        return self._demo.settings

    async def reread(self) -> Settings | None:
        """Keep the keys that were printed."""
        return None

    def announce(self) -> None:
        """Print addresses, keys and a first query."""
        if self._demo is not None:
            self._write(self._demo.banner + "\n")

    async def cleanup(self) -> None:
        """Stop the server."""
        if self._demo is not None:
            await self._demo.server.stop()


@dataclass(frozen=True, slots=True)
class DemoKeys:
    """The demo's secret and API keys."""

    jwt_secret: str
    publishable: str
    secret: str


@dataclass(frozen=True, slots=True)
class PreparedDemo:
    """A demo whose PostgreSQL runs: the settings to serve, and what to print once they are served."""

    settings: Settings
    banner: str
    server: EmbeddedServer


async def prepare_demo(directory: Path | None, service: Settings) -> PreparedDemo:
    """Start PostgreSQL with the sample database in it.

    :param directory: where database and keys are stored; None discards both at the end.
    :param service: how to serve it; its projects are replaced.
    :raises EmbeddedServerError: when PostgreSQL does not start or the sample cannot be made in it.
    """
    server = EmbeddedServer(directory, DEMO_DATABASE)
    uri = await server.start()
    try:
        # An earlier run in the same directory has made the sample's tables.
        if not await run_script(server.uri(), "select 1 from pg_namespace where nspname = 'private'"):
            await run_script(server.uri(), f"begin; {_SCRIPT.read_text('utf-8')} commit;")
        keys = _keys(directory)
    except BaseException as error:
        await server.stop()
        if isinstance(error, (ScriptError, OSError, ValueError)):
            raise EmbeddedServerError(f"the sample cannot be made: {error}") from error
        raise
    settings = replace(service, projects=(demo_project(uri, keys),))
    return PreparedDemo(settings, demo_banner(settings, server.uri(), int(time.time())), server)


def _keys(directory: Path | None) -> DemoKeys:
    """Return the keys stored in the directory, making them the first time."""
    file = directory / "demo-keys.json" if directory is not None else None
    if file is not None and file.exists():
        try:
            return DemoKeys(**json.loads(file.read_text("utf-8")))
        except (TypeError, ValueError):
            raise ValueError(f"{file} does not hold the keys of a demo") from None
    keys = DemoKeys(
        new_secret(secrets.token_urlsafe),
        new_publishable_key(secrets.token_urlsafe),
        new_secret_key(secrets.token_urlsafe),
    )
    if file is not None:
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(keys), indent=2), "utf-8")
    return keys


def demo_project(uri: str, keys: DemoKeys) -> Project:
    """Return the demo's only project, with every optional feature enabled."""
    return Project(
        ref=DEMO_REF,
        organization="demo",
        db_uri=uri,
        jwt_secret=keys.jwt_secret,
        publishable_keys=(keys.publishable,),
        secret_keys=(keys.secret,),
        db_aggregates_enabled=True,
        db_plan_enabled=True,
        graphql_features=frozenset(FEATURES),
    )


def demo_banner(settings: Settings, administrator: str, now: int) -> str:
    """Return the text to print: URLs, keys, and commands to paste.

    :param administrator: the superuser's URI of the sample database.
    :param now: seconds since 1970, from when the printed tokens are good.
    """
    [project] = settings.projects
    base = next(filter(None, map(http_address, settings.listen)), "http://HOST:PORT")
    admin = next(filter(None, map(http_address, settings.admin_listen)), "(off)")
    publishable, secret = project.publishable_keys[0], project.secret_keys[0]
    user = sign(project, "authenticated", now, lifetime=24 * 3600, sub=SIGNED_IN_ACCOUNT)
    body = json.dumps({"query": DEMO_QUERY})
    return f"""
The demo is ready: a sample database of blogs, and what to reach it with.

  Console          {base}/console   (in a browser)
  GraphQL          {base}/graphql/v1
  REST             {base}/rest/v1/
  Administration   {admin}/ready, /metrics
  PostgreSQL       psql '{administrator}'

  Key of anonymous callers    {publishable}
  Key of service_role         {secret}
  The same two as JWT         {sign(project, "anon", now)}
                              {sign(project, "service_role", now)}
  Token of account {SIGNED_IN_ACCOUNT} for a day  {user}

Try it:

  curl -s {base}/graphql/v1 \\
    -H 'apiKey: {publishable}' -H 'Content-Type: application/json' \\
    -d '{body}'

  curl -s '{base}/rest/v1/leaderboard?select=player,score&order=score.desc' \\
    -H 'apikey: {publishable}'

Add -H 'Authorization: Bearer TOKEN' with the token of account {SIGNED_IN_ACCOUNT} to see its drafts too.
"""
