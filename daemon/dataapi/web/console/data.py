"""What the console's pages read of one project, each as its caller's role (docs/console.md, Security)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import Any

from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.auth.caller import Caller
from dataapi.auth.transaction import Runner, Transactions, catalog_for
from dataapi.catalog.model import Catalog
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.long_work import Naps, SharedWork
from dataapi.database.message import Bound, Statement
from dataapi.database.pool import PoolFigures
from dataapi.http.errors import ApiError
from dataapi.http.messages import Request
from dataapi.settings import Project
from dataapi.telemetry.readiness import ProjectState
from dataapi.telemetry.slow_requests import KEPT, SLOW, SlowRequests
from dataapi.telemetry.version import installed_version
from dataapi.web.console.schema import SchemaDescription

DESCRIPTIONS = 16
"""Schemas of roles that are kept."""

_POLICIES = """
select schemaname::text, tablename::text, policyname::text, cmd, permissive = 'PERMISSIVE',
       to_json(roles)::text, qual, with_check
from pg_catalog.pg_policies where schemaname in (select json_array_elements_text($1::json))
order by schemaname, tablename, policyname
"""
_MEMBERS = ("schema", "table", "name", "command", "permissive", "roles", "using", "check")


@dataclass(frozen=True, slots=True)
class _Described:
    """A role's schema as JSON without its final brace, and the schemas and names of its tables."""

    text: bytes
    tables: frozenset[tuple[str, str]]


class ProjectData:
    """Answers the console's questions about one project."""

    def __init__(
        self,
        project: Project,
        runner: Runner,
        catalog: Callable[[], Catalog | None],
        state: Callable[[], ProjectState],
        pool: Callable[[], PoolFigures],
        slow: SlowRequests,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._project = project
        self._catalog = catalog
        self._state = state
        self._pool = pool
        self._slow = slow
        self._now = now
        self._transactions = Transactions(project, runner)
        self._cache: BoundedCache[Hashable, _Described] = BoundedCache(DESCRIPTIONS)
        self._work: SharedWork[Hashable, _Described] = SharedWork(self._cache.put)

    async def schema(self, request: Request, caller: Caller) -> bytes:
        """Return the schema as the caller's role sees it, as JSON.

        :raises ApiError: the request is refused as one to an API would be, or descriptions are switched off.
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

    def health(self, caller: Caller) -> dict[str, Any]:
        """Return whether the project answers, what its pool does in this process, and its slow requests.

        :raises ApiError: 403, the caller is not ``service_role``.
        """
        if caller.role != SERVICE_ROLE:
            raise ApiError(403, "42501", f"Only {SERVICE_ROLE} sees the health of a project")
        state, slow = self._state(), self._slow.of(self._project.ref, self._now())
        return {
            "version": installed_version(),
            "project": {**asdict(state), "ready": state.ready, "pool": asdict(self._pool())},
            "slow": {"seconds": SLOW, "within": KEPT, "requests": [asdict(each) for each in slow]},
        }

    async def _described(self, catalog: Catalog, role: str) -> _Described:
        key = (catalog.content or catalog.generation, role)
        found = self._cache.get(key)
        if found is None:
            found = await self._work.result(key, lambda: _describe(self._project, catalog, role))
        return found


def _describe(project: Project, catalog: Catalog, role: str) -> _Described:
    description = SchemaDescription(project, catalog, role, Naps())
    text = json.dumps(description.document(), ensure_ascii=False, separators=(",", ":"))
    return _Described(text[:-1].encode(), description.tables)


def _policy(row: tuple[Any, ...]) -> dict[str, Any]:
    policy = dict(zip(_MEMBERS, row, strict=True))
    return {**policy, "roles": json.loads(policy["roles"])}
