"""Checks a project's database and documents for ``check-config`` and ``advise``."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dataapi.advisor.checks import SETTINGS, SchemaFinding, findings, parameter, query
from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.catalog.model import Catalog, Privileges, TableKind
from dataapi.catalog.names import missing_key
from dataapi.catalog.reflect import reflect
from dataapi.catalog.watcher import EVENT_TRIGGER_EXISTS, missing_trigger_note
from dataapi.database.pooler import PROCESS, pooler_advice, share_processes
from dataapi.database.script import ScriptError, ServerTooOld, complete, connected, pooler_supports_prepared
from dataapi.service.configuration.endpoints import is_public
from dataapi.service.replica_inspection import replica_findings
from dataapi.service.role_faults import role_faults, roles_of_requests
from dataapi.settings import Project, Settings
from dataapi.webhooks.store.watches import WATCHES, watches

SETTINGS_PASSED_ON = (
    "the pooler does not reset session settings between requests; if your functions change settings of the"
    " session, configure the pooler to reset them (pgbouncer: server_reset_query_always)"
)

Fetch = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""Runs SQL on a connection and returns the rows of the last statement. Blocks."""

_CALLABLE = """
select 1 from pg_catalog.pg_proc f join pg_catalog.pg_namespace s on s.oid = f.pronamespace
where f.proname = $1::text and s.nspname = any ($2::text[]) and f.prokind = 'f'
    and f.pronargs = f.pronargdefaults
limit 1
"""

_EXISTING = "select rolname from pg_catalog.pg_roles where rolname = any ($1::text[])"
_TABLES = (TableKind.ORDINARY, TableKind.PARTITIONED, TableKind.FOREIGN)


class Severity(Enum):
    """The severity of a finding. The value is the prefix of the printed line."""

    MISTAKE = ""
    WARNING = "warning: "
    NOTE = "note: "


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem or a hint for the operator. ``project`` is "" if it concerns all projects.

    ``checked`` is False if the database could not be queried.
    """

    project: str
    text: str
    severity: Severity = Severity.MISTAKE
    checked: bool = True

    @property
    def wrong(self) -> bool:
        return self.severity is Severity.MISTAKE

    def __str__(self) -> str:
        project = f"project {self.project}: " if self.project else ""
        return f"{self.severity.value}{project}{self.text}"


def inspect(project: Project) -> list[Finding]:
    """Check the project's documents and database, and return the findings. Blocks."""
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

    existing = {name for (name,) in fetch(_EXISTING, (roles_of_requests(project),))}
    add(chain(_function_faults(project, fetch), role_faults(project, catalog, existing)))
    failing = [one for one in watches(fetch(WATCHES, ())) if one.fails]
    add(f"writes to {one.table} fail because of the watch {one.type}: {one.state}" for one in failing)
    add(chain(_superuser(catalog), _privileges_missing(project, catalog)), Severity.WARNING)
    if (
        project.db_channel_enabled is not False
        and not fetch(EVENT_TRIGGER_EXISTS, (project.db_channel,))[0][0]
    ):
        add([missing_trigger_note(project.db_channel)], Severity.NOTE)
    for text, wrong in replica_findings(project, roles_of_requests(project), fetch):
        add([text], Severity.MISTAKE if wrong else Severity.WARNING)
    add(_keyless_tables(catalog), Severity.NOTE)
    for problem in catalog.problems:
        # Clashing names are resolved by a rule, and the result may be intended.
        severity = Severity.NOTE if problem.clash else Severity.MISTAKE
        add([f"{problem.place}: {problem.message}"], severity)
    return findings


def inspect_service(settings: Settings) -> list[Finding]:
    """Return the findings that do not belong to a project."""
    texts = [
        f"admin-listen: {endpoint} can be reached from other machines without authentication"
        for endpoint in settings.admin_listen
        if is_public(endpoint)
    ]
    texts += [
        f"{file} contains secrets but is readable by every user of this machine: chmod o= {file}"
        for file in settings.secret_files
        if _everybody_reads(file)
    ]
    findings = [Finding("", text, Severity.WARNING) for text in (*texts, *settings.deprecations)]
    if settings.webhooks is not None and not settings.webhooks.encryption_key:
        missing = "[webhooks] has no encryption-key, so no endpoints can be created"
        findings.append(
            Finding("", f"{missing}: dataapi keys prints one; remove the section to disable webhooks")
        )
    return findings


def _everybody_reads(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def inspect_documents(project: Project) -> list[Finding]:
    if project.graphql_documents is None:
        return []
    from dataapi.graphql.document_store import read_folder  # noqa: PLC0415 - the start needs only ``role_faults``

    try:
        problems = read_folder(project.graphql_documents).problems
    except OSError as error:
        problems = [f"{project.graphql_documents}: {error.strerror}"]
    return [Finding(project.ref, f"graphql-documents: {problem}") for problem in problems]


def read_catalog(project: Project) -> Catalog:
    """Read the catalog of the project's database. Blocks. Raises ``ScriptError`` if a query fails."""
    with connected(project.db_uri) as fetch:
        return _catalog(project, fetch)


def read_advice(project: Project) -> list[SchemaFinding]:
    """Return the advisor's findings about a database. Blocks. Raises ``ScriptError`` if a query fails."""
    with connected(project.db_uri) as fetch:
        return advise(project, fetch)


def advise(project: Project, fetch: Fetch, earlier: Catalog | None = None) -> list[SchemaFinding]:
    """Return the advisor's findings about the database of a connection.

    The query runs as ``service_role`` if that role exists, because reading a sequence requires a privilege.
    """
    catalog = _catalog(project, fetch, earlier)
    role = SERVICE_ROLE if SERVICE_ROLE in catalog.roles else "none"
    text = f"select pg_catalog.set_config('role','{role}',true); {SETTINGS}; {query()}"
    return findings(catalog, fetch(text, (parameter(project, catalog),)))


def _catalog(project: Project, fetch: Fetch, earlier: Catalog | None = None) -> Catalog:
    async def run_query(text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return fetch(text, values)

    features = project.graphql_features
    reflection = reflect(run_query, project.db_schemas, 1, _call, earlier, features)
    return complete(reflection)


def _pooler_findings(project: Project, fetch: Fetch) -> Iterator[Finding]:
    if _in_statement_mode(project.db_uri):
        yield Finding(project.ref, "db-uri names a pooler in statement mode: this is not supported")
        return
    # The database may reject the second connection for this check.
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
    """Return whether BEGIN closes the connection, as with a pooler in statement mode."""
    ended = False
    with suppress(ScriptError), connected(uri) as fetch:
        ended = True
        fetch("begin", ())
        fetch("commit", ())
        ended = False
    return ended


def _passes_settings_on(one: Fetch, other: Fetch) -> bool:
    one("select pg_catalog.set_config('dataapi.probe', 'seen', false)", ())
    seen = "select pg_catalog.current_setting('dataapi.probe', true)"
    try:
        return any(fetch(seen, ())[0][0] == "seen" for _ in range(3) for fetch in (other, one))
    finally:
        one("select pg_catalog.set_config('dataapi.probe', '', false)", ())


def _superuser(catalog: Catalog) -> Iterator[str]:
    for role in catalog.roles.values():
        if role.login and role.superuser:
            yield (
                f"db-uri logs in as {role.name}, a superuser, and bypasses all privilege checks;"
                f" dataapi init creates a role for the daemon"
            )


def _keyless_tables(catalog: Catalog) -> Iterator[str]:
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
    if SERVICE_ROLE not in catalog.roles:
        return
    privileges = Privileges(catalog, SERVICE_ROLE)
    for schema in project.db_schemas:
        tables = [table for table in catalog.tables.values() if table.schema == schema]
        readable = privileges.can_use_schema(schema) and any(
            privileges.can(table, "SELECT") for table in tables
        )
        if tables and not readable:
            yield f"{SERVICE_ROLE} has no privileges on tables of schema {schema}; dataapi init grants them"


def _function_faults(project: Project, fetch: Fetch) -> Iterator[str]:
    keys = {"db-pre-request": project.db_pre_request, "db-root-spec": project.db_root_spec}
    for key, function in keys.items():
        if not function:
            continue
        schema, _, name = function.rpartition(".")
        further = project.db_extra_search_path if key == "db-pre-request" else ()
        searched = list(dict.fromkeys([schema] if schema else [*project.db_schemas, *further]))
        if not fetch(_CALLABLE, (name, searched)):
            schemas = ", ".join(searched)
            yield f"{key}: no function {function} without arguments exists in {schemas}"


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)
