"""Inspects a project's database and documents for ``check-config``, and its roles at start."""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.catalog.model import Catalog, Privileges, TableKind
from dataapi.catalog.names import missing_key
from dataapi.catalog.reflect import reflect
from dataapi.catalog.watcher import EVENT_TRIGGER_EXISTS, missing_trigger_note
from dataapi.database.pooler import PROCESS, pooler_advice, share_processes
from dataapi.database.script import ScriptError, ServerTooOld, complete, connected, pooler_supports_prepared
from dataapi.service.configuration.endpoints import is_public
from dataapi.service.replica_inspection import replica_findings
from dataapi.settings import Project, Settings
from dataapi.webhooks.store.watches import WATCHES, watches

SETTINGS_PASSED_ON = (
    "the pooler before the database passes on what a function sets for its session, from one request to"
    " the next; if functions of yours do so, have it reset sessions (pgbouncer: server_reset_query_always)"
)

Fetch = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""Runs SQL on a connection and returns the last statement's rows; blocks."""

_CALLABLE = """
select 1 from pg_catalog.pg_proc f join pg_catalog.pg_namespace s on s.oid = f.pronamespace
where f.proname = $1::text and s.nspname = any ($2::text[]) and f.prokind = 'f'
    and f.pronargs = f.pronargdefaults
limit 1
"""
"""A function of that name in one of the schemas that can be called without arguments."""

_EXISTING = "select rolname from pg_catalog.pg_roles where rolname = any ($1::text[])"
_TABLES = (TableKind.ORDINARY, TableKind.PARTITIONED, TableKind.FOREIGN)


class Severity(Enum):
    """What a line about a finding begins with."""

    MISTAKE = ""
    WARNING = "warning: "
    NOTE = "note: "


@dataclass(frozen=True, slots=True)
class Finding:
    """Something an operator should know.

    :ivar project: its reference, "" for what concerns all of them.
    :ivar checked: whether it was found, rather than that the database could not be asked.
    """

    project: str
    text: str
    severity: Severity = Severity.MISTAKE
    checked: bool = True

    @property
    def wrong(self) -> bool:
        """Whether it must be corrected; otherwise it may be intended."""
        return self.severity is Severity.MISTAKE

    def __str__(self) -> str:
        """Return the finding as one line of text."""
        project = f"project {self.project}: " if self.project else ""
        return f"{self.severity.value}{project}{self.text}"


def inspect(project: Project) -> list[Finding]:
    """Read the project's documents and its database and return the findings; blocks."""
    findings = inspect_documents(project)
    try:
        with connected(project.db_uri) as fetch:
            findings += _inspect_database(project, fetch)
    except ServerTooOld as error:
        findings.append(Finding(project.ref, str(error)))
    except ScriptError as error:
        reason = " ".join(str(error).split())
        findings.append(Finding(project.ref, f"the database cannot be checked: {reason}", checked=False))
    return findings


def _inspect_database(project: Project, fetch: Fetch) -> list[Finding]:
    catalog = _catalog(project, fetch)
    findings = list(_pooler_findings(project, fetch))

    def add(texts: Iterable[str], severity: Severity = Severity.MISTAKE) -> None:
        findings.extend(Finding(project.ref, text, severity) for text in texts)

    existing = {name for (name,) in fetch(_EXISTING, (_roles(project),))}
    add(chain(_function_faults(project, fetch), role_faults(project, catalog, existing)))
    failing = [one for one in watches(fetch(WATCHES, ())) if one.fails]
    add(f"writes to {one.table} fail for its watch {one.type}: {one.state}" for one in failing)
    add(chain(_superuser(catalog), _privileges_missing(project, catalog)), Severity.WARNING)
    if (
        project.db_channel_enabled is not False
        and not fetch(EVENT_TRIGGER_EXISTS, (project.db_channel,))[0][0]
    ):
        add([missing_trigger_note(project.db_channel)], Severity.NOTE)
    for text, wrong in replica_findings(project, _roles(project), fetch):
        add([text], Severity.MISTAKE if wrong else Severity.WARNING)
    add(_keyless_tables(catalog), Severity.NOTE)
    for problem in catalog.problems:
        # Clashing names are resolved by a rule, whose outcome may be intended.
        severity = Severity.NOTE if problem.clash else Severity.MISTAKE
        add([f"{problem.place}: {problem.message}"], severity)
    return findings


def inspect_service(settings: Settings) -> list[Finding]:
    """Return the findings about what is not a project's."""
    texts = [
        f"admin-listen: {endpoint} is open to other machines, which nothing protects"
        for endpoint in settings.admin_listen
        if is_public(endpoint)
    ]
    texts += [
        f"{file} holds secrets, and its mode lets every user of this machine read it: chmod o= {file}"
        for file in settings.secret_files
        if _everybody_reads(file)
    ]
    findings = [Finding("", text, Severity.WARNING) for text in texts]
    if settings.webhooks is not None and not settings.webhooks.encryption_key:
        missing = "[webhooks] has no encryption-key, without which no endpoint can be created"
        findings.append(
            Finding("", f"{missing}: dataapi keys prints one; remove the section to turn webhooks off")
        )
    return findings


def _everybody_reads(file: Path) -> bool:
    """Whether a file's mode lets every user read it."""
    try:
        return bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def inspect_documents(project: Project) -> list[Finding]:
    """Read the project's persisted documents and return the findings; needs no database."""
    if project.graphql_documents is None:
        return []
    from dataapi.graphql.document_store import read_folder  # noqa: PLC0415 - the start needs only ``role_faults``

    try:
        problems = read_folder(project.graphql_documents).problems
    except OSError as error:
        problems = [f"{project.graphql_documents}: {error.strerror}"]
    return [Finding(project.ref, f"graphql-documents: {problem}") for problem in problems]


def read_catalog(project: Project) -> Catalog:
    """Read what the project's database holds; blocks, and raises ``ScriptError`` if it cannot be asked."""
    with connected(project.db_uri) as fetch:
        return _catalog(project, fetch)


def _catalog(project: Project, fetch: Fetch) -> Catalog:
    async def at_once(text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return fetch(text, values)

    features = project.graphql_features
    return complete(reflect(at_once, project.db_schemas, 1, in_thread=_call, features=features))


def _pooler_findings(project: Project, fetch: Fetch) -> Iterator[Finding]:
    """Yield what does not work, or is to be known, of a pooler that shares server processes; blocks."""
    if _in_statement_mode(project.db_uri):
        yield Finding(project.ref, "db-uri leads to a pooler in statement mode, which cannot be used")
        return
    # It takes a second connection, which a database may not have free.
    with suppress(ScriptError), connected(project.db_uri) as other:

        async def process(fetch: Fetch) -> int:
            return int(fetch(PROCESS, ())[0][0])

        if not complete(share_processes(partial(process, fetch), partial(process, other))):
            return
        prepared = project.db_prepared_statements
        prepared = prepared and not pooler_supports_prepared(project.db_uri)
        if advice := pooler_advice(prepared=prepared, listening=project.db_channel_enabled):
            yield Finding(project.ref, advice)
        if _passes_settings_on(fetch, other):
            yield Finding(project.ref, SETTINGS_PASSED_ON, Severity.WARNING)


def _in_statement_mode(uri: str) -> bool:
    """Return whether a pooler ends a connection that begins a transaction."""
    ended = False
    with suppress(ScriptError), connected(uri) as fetch:
        ended = True
        fetch("begin", ())
        fetch("commit", ())
        ended = False
    return ended


def _passes_settings_on(one: Fetch, other: Fetch) -> bool:
    """Return whether a setting that one client makes for its session was seen by another one."""
    one("select pg_catalog.set_config('dataapi.probe', 'seen', false)", ())
    seen = "select pg_catalog.current_setting('dataapi.probe', true)"
    try:
        return any(fetch(seen, ())[0][0] == "seen" for _ in range(3) for fetch in (other, one))
    finally:
        one("select pg_catalog.set_config('dataapi.probe', '', false)", ())


def _superuser(catalog: Catalog) -> Iterator[str]:
    """Yield that the login role is a superuser, if it is."""
    for role in catalog.roles.values():
        if role.login and role.superuser:
            yield (
                f"db-uri logs in as {role.name}, a superuser, which no privilege check restrains;"
                f" dataapi init makes a role for the daemon"
            )


def _keyless_tables(catalog: Catalog) -> Iterator[str]:
    """Yield each table that somebody may read and GraphQL leaves out; a view often is to be left out."""
    privileges = [
        Privileges(catalog, role.name) for role in catalog.roles.values() if role.forbidden_kind is None
    ]
    tables = [
        table
        for table in catalog.tables.values()
        if table.kind in _TABLES and not table.partition_of and not catalog.primary_key(table)
    ]
    for table in sorted(tables, key=lambda each: (each.schema, each.name)):
        if any(role.can_use_schema(table.schema) and role.can(table, "SELECT") for role in privileges):
            yield missing_key(table)


def _privileges_missing(project: Project, catalog: Catalog) -> Iterator[str]:
    """Yield each exposed schema of whose tables secret keys open none, which is what they are for."""
    if SERVICE_ROLE not in catalog.roles:
        return
    privileges = Privileges(catalog, SERVICE_ROLE)
    for schema in project.db_schemas:
        tables = [table for table in catalog.tables.values() if table.schema == schema]
        readable = privileges.can_use_schema(schema) and any(
            privileges.can(table, "SELECT") for table in tables
        )
        if tables and not readable:
            yield f"{SERVICE_ROLE} may read no table of schema {schema}; dataapi init grants it all of them"


def _function_faults(project: Project, fetch: Fetch) -> Iterator[str]:
    """Yield each function that the configuration names and the database does not have; blocks."""
    keys = {"db-pre-request": project.db_pre_request, "db-root-spec": project.db_root_spec}
    for key, function in keys.items():
        if not function:
            continue
        schema, _, name = function.rpartition(".")
        further = project.db_extra_search_path if key == "db-pre-request" else ()
        searched = list(dict.fromkeys([schema] if schema else [*project.db_schemas, *further]))
        if not fetch(_CALLABLE, (name, searched)):
            places = ", ".join(searched)
            yield f"{key} names {function}, and there is no such function without arguments in {places}"


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _roles(project: Project) -> list[str]:
    """Return the roles that API keys and callers without one get."""
    names = dict.fromkeys((project.db_anon_role, SERVICE_ROLE if project.secret_keys else ""))
    return list(filter(None, names))


def role_faults(project: Project, catalog: Catalog, existing: Collection[str] | None = None) -> list[str]:
    """Return what is wrong with the roles that API keys and callers without one get.

    :param existing: those of them that the database has, None where that is not known.
    """
    faults = []
    for name in _roles(project):
        role = catalog.roles.get(name)
        if role is None and existing is not None and name not in existing:
            faults.append(f"requests run as {name}, and there is no such role")
        elif role is None:
            faults.append(f"requests run as {name}, and the login role of db-uri may not become that role")
        elif role.forbidden_kind is not None:
            faults.append(f"requests run as {name}, which is {role.forbidden_kind}: they are refused")
    return faults
