"""The console's data about a project, as visible to the caller's role (docs/console.md, Security)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from twisted.internet.threads import deferToThread

from dataapi.advisor.checks import SETTINGS, findings, parameter, query
from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.auth.caller import Caller
from dataapi.auth.transaction import Runner, Transactions, catalog_for
from dataapi.catalog.model import Catalog
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.tasks import PeriodicPause, SharedWork
from dataapi.database.message import Bound, Statement
from dataapi.database.pool import PoolFigures
from dataapi.graphql.document_store import Documents
from dataapi.http.errors import ApiError, DatabaseUnavailable
from dataapi.http.messages import Request
from dataapi.settings import Project
from dataapi.telemetry.readiness import ProjectState
from dataapi.telemetry.slow_requests import RETENTION, SLOW
from dataapi.telemetry.version import installed_version
from dataapi.telemetry.vitals import Vitals
from dataapi.web.console.schema import SchemaDescription

DESCRIPTIONS = 16
"""Maximum number of cached schema descriptions."""

_POLICIES = files("dataapi.catalog").joinpath("policies.sql").read_text(encoding="utf-8")
_MEMBERS = ("schema", "table", "name", "command", "permissive", "roles", "using", "check")


@dataclass(frozen=True, slots=True)
class _Described:
    """A role's schema as JSON without the closing brace, and the schema and name of each visible table."""

    text: bytes
    tables: frozenset[tuple[str, str]]


class ProjectData:
    """The console's data about a project."""

    def __init__(
        self,
        project: Project,
        runner: Runner,
        catalog: Callable[[], Catalog | None],
        documents: Callable[[], Documents | None],
        state: Callable[[], ProjectState],
        pool: Callable[[], PoolFigures],
        vitals: Vitals,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._project = project
        self._catalog = catalog
        self._documents = documents
        self._state = state
        self._pool = pool
        self._vitals = vitals
        self._now = now
        self._transactions = Transactions(project, runner)
        self._cache: BoundedCache[Hashable, _Described] = BoundedCache(DESCRIPTIONS)
        self._work: SharedWork[Hashable, _Described] = SharedWork(self._cache.put)

    async def schema(self, request: Request, caller: Caller) -> bytes:
        """Return the part of the schema that is visible to the caller's role, as JSON.

        :raises ApiError: 404 if ``openapi-mode`` hides the schema, or the error of the pre-request function.
        """
        catalog = catalog_for(self._catalog(), caller)
        if caller.role == SERVICE_ROLE:
            statement = Bound(Statement(_POLICIES, ("json",)), (json.dumps(self._project.db_schemas),))
            policies = await self._transactions.run(catalog, request, caller, (statement,), read_only=True)
            described = await self._described(catalog, caller.role)
            shown = [_policy(row) for row in policies if row[:2] in described.tables]
            return described.text + b',"policies":' + json.dumps(shown).encode() + b"}"
        if self._project.openapi_mode == "disabled":
            hint = "openapi-mode is disabled: only service_role sees the schema."
            raise ApiError(404, "PGRST126", "Root endpoint metadata is disabled", hint=hint)
        await self._transactions.assume(caller.role)
        await self._transactions.run_pre_request(catalog, request, caller)
        return (await self._described(catalog, caller.role)).text + b"}"

    async def identity(self, caller: Caller) -> dict[str, str]:
        await self._transactions.assume(caller.role)
        return {"role": caller.role}

    async def documents(self, request: Request, caller: Caller) -> bytes:
        """Return the persisted documents and their ids, as JSON.

        :raises ApiError: 403 if the caller is not ``service_role``, or the error of the pre-request function.
        """
        _check_service(caller, "the persisted documents")
        await self._transactions.run_pre_request(catalog_for(self._catalog(), caller), request, caller)
        documents = self._documents()
        return await deferToThread(_listed, {} if documents is None else documents.by_id)

    async def advice(self, request: Request, caller: Caller) -> list[dict[str, str]]:
        """Return the advisor's findings (docs/guides/advisor.md).

        :raises ApiError: 403 if the caller is not ``service_role``, or the error of the pre-request function.
        """
        _check_service(caller, "the findings of the advisor")
        catalog = catalog_for(self._catalog(), caller)
        checks = Bound(Statement(query(), ("json",), prepared=False), (parameter(self._project, catalog),))
        statements = (Bound(Statement(SETTINGS, (), prepared=False)), checks)
        rows = await self._transactions.run(catalog, request, caller, statements, read_only=True)
        return [finding.as_json() for finding in await deferToThread(findings, catalog, rows)]

    async def health(self, request: Request, caller: Caller) -> dict[str, Any]:
        """Return the state of the project, its pool in this process, and its slow requests.

        If the database is unavailable, the pre-request function is skipped, so that the state is available.

        :raises ApiError: 403 if the caller is not ``service_role``, or the error of the pre-request function.
        """
        _check_service(caller, "the health of a project")
        if self._project.db_pre_request and self._state().database_available:
            with suppress(DatabaseUnavailable):
                catalog = catalog_for(self._catalog(), caller)
                await self._transactions.run_pre_request(catalog, request, caller)
        state, slow = self._state(), self._vitals.slow.recent(self._project.ref, self._now())
        return {
            "version": installed_version(),
            "project": {**asdict(state), "ready": state.ready, "pool": asdict(self._pool())},
            **self._vitals.as_json(),
            "slow": {"seconds": SLOW, "within": RETENTION, "requests": [asdict(each) for each in slow]},
        }

    async def _described(self, catalog: Catalog, role: str) -> _Described:
        key = (catalog.content or catalog.generation, role)
        described = self._cache.get(key)
        if described is None:
            described = await self._work.result(key, lambda: _describe(self._project, catalog, role))
        return described


def _check_service(caller: Caller, data: str) -> None:
    if caller.role != SERVICE_ROLE:
        raise ApiError(403, "42501", f"Only {SERVICE_ROLE} sees {data}")


def _listed(documents: Mapping[str, str]) -> bytes:
    pause, listed = PeriodicPause(), []
    for document_id in sorted(documents):
        pause()
        listed.append(json.dumps({"id": document_id, "text": documents[document_id]}, ensure_ascii=False))
    return f'{{"documents":[{",".join(listed)}]}}'.encode()


def _describe(project: Project, catalog: Catalog, role: str) -> _Described:
    description = SchemaDescription(project, catalog, role, PeriodicPause())
    text = json.dumps(description.document(), ensure_ascii=False, separators=(",", ":"))
    return _Described(text[:-1].encode(), description.tables)


def _policy(row: tuple[Any, ...]) -> dict[str, Any]:
    policy = dict(zip(_MEMBERS, row, strict=True))
    return {**policy, "roles": json.loads(policy["roles"])}
