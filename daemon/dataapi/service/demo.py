"""The demo: a sample database with fresh keys in an embedded PostgreSQL, and instructions to try it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from twisted.internet.threads import deferToThread

from dataapi.auth.keys import new_publishable_key, new_secret, new_secret_key, sign
from dataapi.catalog.directives import FEATURES
from dataapi.database.embedded import EmbeddedServer, EmbeddedServerError
from dataapi.database.script import ScriptError, run_script
from dataapi.database.sql_text import BEGIN_OWN_SQL
from dataapi.service.configuration.endpoints import http_address
from dataapi.service.private_files import create_private
from dataapi.service.sockets import StartFailed
from dataapi.settings import REST_FEATURES, Project, Settings, Tour, Webhooks

DEMO_REF = "demodemodemodemodemo"
DEMO_ORGANIZATION = "demo"
DEMO_DATABASE = "demo"
SIGNED_IN_ACCOUNT = "1"

DEMO_QUERY = (
    "{ blogCollection(first: 2) { edges { node { name owner { firstName } "
    "blogPostCollection(orderBy: [{createdAt: DescNullsLast}]) { edges { node { title wordCount } } } } } } }"
)

_OWN_ADDRESSES = ("127.0.0.1", "::1")
"""Private addresses that the demo may deliver to, for the console's test receivers."""

_SCRIPT = Path(__file__).with_name("demo.sql")


class Demo:
    """The source of the demo's settings."""

    def __init__(self, settings: Settings, directory: Path | None, write: Callable[[str], object]) -> None:
        self.settings = settings
        self._directory = directory
        self._write = write
        self._demo: PreparedDemo | None = None

    async def prepare(self) -> Settings:
        try:
            self._demo = await prepare_demo(self._directory, self.settings)
        except EmbeddedServerError as error:
            raise StartFailed(f"the embedded PostgreSQL cannot start: {error}") from error
        return self._demo.settings

    async def reread(self) -> Settings | None:
        return None

    async def reread_database(self, _ref: str) -> Settings | None:
        return None

    @property
    def failures(self) -> Mapping[str, str]:
        return {}

    def announce(self) -> None:
        if self._demo is not None:
            self._write(self._demo.banner + "\n")

    async def cleanup(self) -> None:
        if self._demo is not None:
            await self._demo.server.stop()


@dataclass(frozen=True, slots=True)
class DemoKeys:
    """The demo's JWT secret and API keys, and its encryption key and token for webhooks."""

    jwt_secret: str
    publishable: str
    secret: str
    encryption: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class PreparedDemo:
    """A demo with a running PostgreSQL: its settings, and the banner to print."""

    settings: Settings
    banner: str
    server: EmbeddedServer


async def prepare_demo(directory: Path | None, service: Settings) -> PreparedDemo:
    """Start PostgreSQL with the sample database. The demo's project replaces the projects of the settings.

    :param directory: directory for the database and the keys. If it is None, both are discarded at the end.
    :raises EmbeddedServerError: PostgreSQL does not start, or the sample cannot be created.
    """
    server = EmbeddedServer(directory, DEMO_DATABASE)
    uri = await server.start()
    try:
        # Create the sample unless a previous run in the same directory did.
        if not await run_script(
            server.uri(), f"{BEGIN_OWN_SQL}select 1 from pg_namespace where nspname = 'private'"
        ):
            await run_script(server.uri(), f"begin; {_SCRIPT.read_text('utf-8')} commit;")
        keys = await deferToThread(_prepared_keys, directory, uri)
    except BaseException as error:
        await server.stop()
        if isinstance(error, (ScriptError, OSError, ValueError)):
            raise EmbeddedServerError(f"the sample database cannot be created: {error}") from error
        raise
    webhooks = Webhooks(encryption_key=(keys.encryption,), allow_addresses=_OWN_ADDRESSES)
    settings = replace(service, projects=(demo_project(uri, keys),), webhooks=webhooks)
    return PreparedDemo(settings, demo_banner(settings, server.uri(), keys.token, int(time.time())), server)


def _prepared_keys(directory: Path | None, uri: str) -> DemoKeys:
    """Return the keys, and register the demo's project for webhooks. Blocks."""
    from dataapi.service import demo_webhooks  # noqa: PLC0415 - its imports would delay every start

    keys = _keys(directory, demo_webhooks.new_key, demo_webhooks.new_token)
    demo_webhooks.register(uri, DEMO_ORGANIZATION, DEMO_REF, keys.token)
    return keys


def _keys(directory: Path | None, new_key: Callable[[], str], new_token: Callable[[], str]) -> DemoKeys:
    file = directory / "demo-keys.json" if directory is not None else None
    if file is not None and file.exists():
        try:
            keys = DemoKeys(**json.loads(file.read_text("utf-8")))
        except (TypeError, ValueError):
            raise ValueError(f"{file} does not contain the keys of a demo") from None
        if keys.encryption and keys.token:
            return keys
        keys = replace(keys, encryption=new_key(), token=new_token())  # written before the demo had webhooks
    else:
        keys = DemoKeys(
            new_secret(secrets.token_urlsafe),
            new_publishable_key(secrets.token_urlsafe),
            new_secret_key(secrets.token_urlsafe),
            new_key(),
            new_token(),
        )
    if file is not None:
        file.unlink(missing_ok=True)
        create_private(file, json.dumps(asdict(keys), indent=2))
    return keys


def demo_project(uri: str, keys: DemoKeys) -> Project:
    return Project(
        ref=DEMO_REF,
        organization=DEMO_ORGANIZATION,
        db_uri=uri,
        jwt_secret=keys.jwt_secret,
        publishable_keys=(keys.publishable,),
        secret_keys=(keys.secret,),
        db_aggregates_enabled=True,
        db_plan_enabled=True,
        graphql_features=frozenset(FEATURES),
        rest_features=frozenset(REST_FEATURES),
        tour=Tour(SIGNED_IN_ACCOUNT, keys.token),
    )


def demo_banner(settings: Settings, administrator: str, token: str, now: int) -> str:
    """Return the text to print: URLs, keys, and commands to paste.

    ``administrator`` is the superuser's URI. Printed tokens are valid from ``now``, in Unix seconds.
    """
    [project] = settings.projects
    base = next(filter(None, map(http_address, settings.listen)), "http://HOST:PORT")
    admin = next(filter(None, map(http_address, settings.admin_listen)), "(off)")
    publishable, secret = project.publishable_keys[0], project.secret_keys[0]
    user = sign(project, "authenticated", now, lifetime=24 * 3600, sub=SIGNED_IN_ACCOUNT)
    body = json.dumps({"query": DEMO_QUERY})
    return f"""
The demo is ready. It serves a sample database of blogs:

  Console          {base}/console   (in a browser)
  GraphQL          {base}/graphql/v1
  REST             {base}/rest/v1/
  Administration   {admin}/ready, /metrics
  PostgreSQL       psql '{administrator}'

  Key of anonymous callers    {publishable}
  Key of service_role         {secret}
  Both keys as JWTs           {sign(project, "anon", now)}
                              {sign(project, "service_role", now)}
  Token of account {SIGNED_IN_ACCOUNT} for a day  {user}
  Token for webhooks          {token}

Try it:

  curl -s {base}/graphql/v1 \\
    -H 'apiKey: {publishable}' -H 'Content-Type: application/json' \\
    -d '{body}'

  curl -s '{base}/rest/v1/leaderboard?select=player,score&order=score.desc' \\
    -H 'apikey: {publishable}'

To include the drafts of account {SIGNED_IN_ACCOUNT}, add -H 'Authorization: Bearer TOKEN' with its token.
"""
