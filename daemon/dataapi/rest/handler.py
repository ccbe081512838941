"""Answers REST requests of one project: request to read, read to one message, its row to an answer."""

from __future__ import annotations

from collections.abc import Callable

from dataapi.access.caller import Caller
from dataapi.access.transaction import Runner, Transactions, catalog_for
from dataapi.cache import BoundedCache
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound
from dataapi.errors import ApiError
from dataapi.query.sql import Compiled
from dataapi.rest import media
from dataapi.rest.compiler import Source, compile_read
from dataapi.rest.ranges import content_range, status_of
from dataapi.rest.reading import Reading, Shape, read, schema_of, table_of
from dataapi.rest.tables import ReadableTables, Tables
from dataapi.settings import Project
from dataapi.web.messages import Reply, Request

SHAPES_PER_ROLE = 500
"""Reads that are kept compiled for one role."""
LONGEST_KEPT = 8000
"""Characters of ``select`` and ``order`` beyond which a compiled read is not kept, to bound the memory."""

_ALLOW = ("Allow", "OPTIONS, GET, HEAD")


class _RoleState:
    """A role's tables and compiled reads at one catalog generation."""

    def __init__(self, tables: Tables, role: str) -> None:
        self.tables = ReadableTables(tables, role)
        self.reads: BoundedCache[Shape, Compiled] = BoundedCache(SHAPES_PER_ROLE)


class RestHandler:
    """Answers REST requests.

    :param catalog: returns the snapshot that serves now, None while there is none.
    :ivar hits, misses: reads that were compiled already, and that were not.
    """

    def __init__(self, project: Project, runner: Runner, catalog: Callable[[], Catalog | None]) -> None:
        self._schemas = project.db_schemas
        self._most = project.db_max_rows
        self._catalog = catalog
        self._transactions = Transactions(project, runner)
        self._tables: Tables | None = None
        self._roles: dict[str, _RoleState] = {}
        self.hits = 0
        self.misses = 0

    async def answer(self, request: Request, caller: Caller) -> Reply:
        """Answer a request; raises ``ApiError`` for whatever a client may read of a failure."""
        catalog = catalog_for(self._catalog(), caller)
        role = self._role(catalog, caller.role)
        if request.method == "OPTIONS":
            role.tables.find(schema_of(request, self._schemas), table_of(request.path))
            return Reply(200, (_ALLOW,), b"")
        if request.method not in ("GET", "HEAD"):
            details = f"{request.method} on tables is not available yet."
            raise ApiError(405, "PGRST127", "Feature not implemented", details=details, headers=(_ALLOW,))
        reading = read(request, self._schemas, self._most)
        compiled = self._compiled(role, reading.shape)
        rows = await self._transactions.run(
            catalog, request, caller, (_bound(compiled, reading),), read_only=True
        )
        return self._reply(reading, *rows[0])

    def _role(self, catalog: Catalog, role: str) -> _RoleState:
        if self._tables is None or self._tables.catalog is not catalog:
            self._tables = Tables(catalog)
            self._roles.clear()
        state = self._roles.get(role)
        if state is None:
            state = self._roles[role] = _RoleState(self._tables, role)
        return state

    def _compiled(self, role: _RoleState, shape: Shape) -> Compiled:
        compiled = role.reads.get(shape)
        if compiled is not None:
            self.hits += 1
            return compiled
        self.misses += 1
        compiled = compile_read(role.tables, shape, self._most)
        if len(shape.select) + sum(len(order) for _, order in shape.orders) <= LONGEST_KEPT:
            role.reads.put(shape, compiled)
        return compiled

    def _reply(self, reading: Reading, body: bytes, count: int, total: int | None) -> Reply:
        offset = reading.windows[0][1].offset
        status = status_of(offset, count, total)
        headers = [
            ("Content-Type", media.OBJECT if reading.single else media.JSON),
            ("Content-Range", content_range(offset, count, total)),
            ("Vary", "Accept, Prefer, Range"),
        ]
        if len(self._schemas) > 1:
            headers.append(("Content-Profile", reading.shape.schema))
        if reading.applied:
            headers.append(("Preference-Applied", reading.applied))
        if reading.single:
            if count != 1:
                raise ApiError(
                    406,
                    "PGRST116",
                    "Cannot coerce the result to a single JSON object",
                    details=f"The result contains {count} rows",
                )
            body = body[1:-1]  # without the array's brackets
        return Reply(status, tuple(headers), body)


def _bound(compiled: Compiled, reading: Reading) -> Bound:
    windows = dict(reading.windows)
    values = []
    for source in compiled.sources:
        assert isinstance(source, Source)
        values.append(source.bind(windows))
    return Bound(compiled.statement, tuple(values))
