"""The demo: a PostgreSQL of its own, a sample schema, and keys and URLs to try it with."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dataapi.api_keys import new_publishable_key, new_secret, new_secret_key, sign
from dataapi.catalog.directives import FEATURES
from dataapi.database.embedded import EmbeddedServer, EmbeddedServerError
from dataapi.database.script import ScriptError, run_script
from dataapi.settings import Project, Settings
from dataapi.settings.endpoints import http_address

REF = "demodemodemodemodemo"
DATABASE = "demo"
SIGNED_IN_ACCOUNT = "1"
"""The account that the demo's user token is for."""

QUERY = (
    "{ blogCollection(first: 2) { edges { node { name owner { firstName } "
    "blogPostCollection(orderBy: [{createdAt: DescNullsLast}]) { edges { node { title wordCount } } } } } } }"
)

_SCRIPT = Path(__file__).with_name("demo.sql")


@dataclass(frozen=True, slots=True)
class Keys:
    """What callers of the demo identify themselves with."""

    jwt_secret: str
    publishable: str
    secret: str


@dataclass(frozen=True, slots=True)
class Demo:
    """A prepared demo.

    :ivar settings: the configuration to serve.
    :ivar banner: what to print once it is served.
    :ivar server: the running PostgreSQL, to be stopped at the end.
    """

    settings: Settings
    banner: str
    server: EmbeddedServer


async def prepare(directory: Path | None, service: Settings) -> Demo:
    """Start PostgreSQL with the sample database in it.

    :param directory: where database and keys are kept; None forgets both at the end.
    :param service: how to serve it; its projects are replaced.
    :raises EmbeddedServerError: when PostgreSQL does not start or the sample cannot be made in it.
    """
    server = EmbeddedServer(directory, DATABASE)
    uri = await server.start()
    try:
        await _ensure_sample(server.uri())
        keys = _keys(directory)
    except BaseException as error:
        await server.stop()
        if isinstance(error, (ScriptError, OSError, ValueError)):
            raise EmbeddedServerError(f"the sample cannot be made: {error}") from error
        raise
    settings = replace(service, projects=(demo_project(uri, keys),))
    return Demo(settings, banner(settings, server.uri(), int(time.time())), server)


async def _ensure_sample(administrator: str) -> None:
    """Make the sample's tables, unless they are there from an earlier run."""
    if not await run_script(administrator, "select 1 from pg_namespace where nspname = 'private'"):
        await run_script(administrator, f"begin; {_SCRIPT.read_text('utf-8')} commit;")


def _keys(directory: Path | None) -> Keys:
    """Return the keys kept in the directory, making them at the first time."""
    file = directory / "demo-keys.json" if directory is not None else None
    if file is not None and file.exists():
        try:
            return Keys(**json.loads(file.read_text("utf-8")))
        except (TypeError, ValueError):
            raise ValueError(f"{file} does not hold the keys of a demo") from None
    keys = Keys(new_secret(), new_publishable_key(), new_secret_key())
    if file is not None:
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(keys), indent=2), "utf-8")
    return keys


def demo_project(uri: str, keys: Keys) -> Project:
    """Return the demo's only project, with everything on that is off by default."""
    return Project(
        ref=REF,
        organization="demo",
        db_uri=uri,
        jwt_secret=keys.jwt_secret,
        publishable_keys=(keys.publishable,),
        secret_keys=(keys.secret,),
        db_aggregates_enabled=True,
        db_plan_enabled=True,
        graphql_features=frozenset(FEATURES),
    )


def banner(settings: Settings, administrator: str, now: int) -> str:
    """Return what to print: URLs, keys, and a command to paste.

    :param administrator: the superuser's URI of the sample database.
    :param now: seconds since 1970, from when the printed tokens are good.
    """
    [project] = settings.projects
    base = next(filter(None, map(http_address, settings.listen)), "http://HOST:PORT")
    admin = next(filter(None, map(http_address, settings.admin_listen)), "(off)")
    publishable, secret = project.publishable_keys[0], project.secret_keys[0]
    user = sign(project, "authenticated", now, lifetime=24 * 3600, sub=SIGNED_IN_ACCOUNT)
    body = json.dumps({"query": QUERY})
    return f"""
The demo is ready: a sample database of blogs, and what to reach it with.

  GraphQL          {base}/graphql/v1   (a browser shows a console)
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
