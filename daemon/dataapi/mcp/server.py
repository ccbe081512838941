"""Serves one project's tools. Each call is a REST request of the caller, handled inside the process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from functools import partial
from json.encoder import encode_basestring
from typing import Any, NoReturn

from dataapi.auth.caller import Caller
from dataapi.auth.transaction import Runner, Transactions, catalog_for
from dataapi.catalog.model import Catalog, Table
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.tasks import PeriodicPause, SharedWork, WorkerThread
from dataapi.http.errors import ApiError
from dataapi.http.headers import media_type
from dataapi.http.messages import Operation, Reply, Request
from dataapi.http.strict_json import EXACT_DECODER, INVALID_JSON, encode
from dataapi.mcp import protocol, tools
from dataapi.mcp.objects import RoleObjects
from dataapi.mcp.protocol import RpcError, RpcRequest
from dataapi.rest.handler import LONG_BODY
from dataapi.rest.parse.body import JSON
from dataapi.rest.parse.query import too_much
from dataapi.rest.parse.request import schema_of
from dataapi.rest.plan.rows import max_rows
from dataapi.settings import Project

MAX_BYTES = 262_144
"""Maximum size of the data in a result, in bytes."""
_ROLES = 16
_CACHING = {"ttlMs": 300_000, "cacheScope": "public"}
"""Lets clients cache the tools, because the tools depend only on the configuration."""

_TOTAL = re.compile(r"[0-9*-]+/([0-9]+)")


class ToolServer:
    """Handles requests from agents.

    :param catalog: returns the current catalog, None before the first one is loaded.
    :param writes: whether tools may write (``mcp-writes``).
    :ivar calls: number of calls by tool and outcome (``succeeded`` or ``failed``).
    """

    def __init__(
        self,
        project: Project,
        rest: Callable[[Request, Caller], Awaitable[Reply]],
        runner: Runner,
        catalog: Callable[[], Catalog | None],
        *,
        writes: bool,
    ) -> None:
        self._project = project
        self._rest = rest
        self._transactions = Transactions(project, runner)
        self._catalog = catalog
        self._writes = writes
        self._tools = tools.definitions(writes=writes)
        self._worker = WorkerThread()
        self._objects: BoundedCache[Hashable, RoleObjects] = BoundedCache(_ROLES)
        self._describing: SharedWork[Hashable, RoleObjects] = SharedWork(self._objects.put)
        self.calls: Counter[tuple[str, str]] = Counter()

    async def handle(self, http: Request, caller: Caller) -> Reply:
        """Handle a request from an authenticated caller.

        :raises ApiError: 415 if the media type is not JSON.
        """
        try:
            request: RpcRequest = await self._run(http, partial(protocol.read, http))
            return Reply(202, (), b"") if request.id is None else await self._respond(request, http, caller)
        except RpcError as error:
            return error.reply
        except RecursionError:
            return RpcError(protocol.INVALID_REQUEST, "The message is nested too deeply").reply

    async def _run(self, http: Request, work: Callable[[], Any]) -> Any:
        return await self._worker.run(work) if len(http.body) > LONG_BODY else work()

    async def _respond(self, request: RpcRequest, http: Request, caller: Caller) -> Reply:
        if request.method not in protocol.METHODS[request.revision]:
            raise request.error(protocol.METHOD_NOT_FOUND, f"Unknown method: {request.method[:60]}")
        if request.method == protocol.CALL:
            return await self._call(request, http, caller)
        about = {"capabilities": {"tools": {}}, "instructions": tools.INSTRUCTIONS}
        results: Mapping[str, Mapping[str, Any]] = {
            "server/discover": {"supportedVersions": protocol.REVISIONS, **about},
            "initialize": {"protocolVersion": protocol.INITIALIZED, "serverInfo": protocol.SERVER, **about},
            "tools/list": {"tools": [*self._tools.values()]},
            "ping": {},
        }
        caching = _CACHING if request.revision == protocol.STATELESS else {}
        return request.respond(encode({**results[request.method], **caching})[1:-1])

    async def _call(self, request: RpcRequest, http: Request, caller: Caller) -> Reply:
        name, arguments = request.params.get("name"), request.params.get("arguments", {})
        if not isinstance(name, str) or name not in self._tools:
            raise request.error(protocol.INVALID_PARAMS, f"Unknown tool: {str(name)[:60]}")
        if not isinstance(arguments, dict):
            raise request.error(protocol.INVALID_PARAMS, 'Expected "arguments" to be an object')
        http.context.report(Operation(name))
        # Unless tools may write, PostgreSQL rejects all writes, including those of functions and views.
        # Related rows would not count towards ``max_affected``.
        context = http.context._replace(read_only=not self._writes, nested_inserts=False)
        http = http._replace(context=context)
        code, outcome = "", "failed"
        try:
            await self._run(http, partial(tools.check, name, arguments))
            data = await self._data(name, arguments, http, caller)
            outcome = "succeeded"
        except ApiError as error:
            code, data = error.code, encode(error.members(self._project.client_error_verbosity))
        finally:
            self.calls[name, outcome] += 1
        content = f'"content":[{{"type":"text","text":{encode_basestring(data)}}}],"structuredContent":{data}'
        return request.respond(f'{content},"isError":{encode(bool(code))}', code)

    async def _data(self, name: str, arguments: Mapping[str, Any], http: Request, caller: Caller) -> str:
        if name == tools.LIST:
            schema, schemas = arguments.get("schema"), self._project.db_schemas
            if schema is not None:
                schema_of(http._replace(method="GET", headers={"accept-profile": schema}), schemas)
            objects = await self._visible(http, caller)
            offset, limit = tools.number(arguments, "offset"), tools.number(arguments, "limit")
            page = encode(objects.page(schema, offset, limit))
            return page if len(page) <= MAX_BYTES else _reject_size(len(page))
        # For ``describe_table``, the request has no effect, but fails if the caller lacks privileges.
        request = await self._run(http, partial(tools.rest_request, http, name, arguments))
        reply = await self._rest(request, caller)
        if name != tools.DESCRIBE:
            return self._result(name, arguments, reply)
        described = (await self._visible(http, caller)).describe(*self._named(arguments))
        if described is None:
            raise ApiError(404, "PGRST205", "The caller can neither read nor change this table")
        return encode(described)

    async def _visible(self, http: Request, caller: Caller) -> RoleObjects:
        """Check the role, run the pre-request function, and return the objects that the role may use."""
        catalog = catalog_for(self._catalog(), caller)
        await self._transactions.assume(caller.role)
        await self._transactions.run_pre_request(catalog, http, caller)
        key, schemas = (catalog.content or catalog.generation, caller.role), self._project.db_schemas
        return self._objects.get(key) or await self._describing.result(
            key, lambda: RoleObjects(catalog, schemas, caller.role, PeriodicPause())
        )

    def _named(self, arguments: Mapping[str, Any], argument: str = "table") -> tuple[str, str]:
        return arguments.get("schema", self._project.db_schemas[0]), arguments[argument]

    def _result(self, name: str, arguments: Mapping[str, Any], reply: Reply) -> str:
        headers = {key.lower(): value for key, value in reply.headers}
        total = _TOTAL.fullmatch(headers.get("content-range", ""))
        count, size = total[1] if total else "null", len(reply.body)
        if size > MAX_BYTES:
            if name == tools.READ:
                _reject_size(size)
            data, value, omitted = "null", None, f',"omitted_bytes":{size}'
        else:
            data, omitted = reply.body.decode(errors="replace") or "null", ""
            if media_type(headers.get("content-type", JSON)) != JSON:
                data = encode(data)
            value = _decoded(data)
        if name in tools.WRITES:
            return f'{{"affected":{count},"rows":{data}{omitted}}}'
        following = encode(self._next_offset(name, arguments, value))
        if name == tools.READ:
            return f'{{"rows":{data},"next_offset":{following},"total":{count}}}'
        return f'{{"result":{data},"next_offset":{following}{omitted}}}'

    def _next_offset(self, name: str, arguments: Mapping[str, Any], rows: Any) -> int | None:
        catalog = self._catalog()
        if not isinstance(rows, list) or not rows or catalog is None:
            return None
        limit, default = tools.number(arguments, "limit"), self._project.db_max_rows
        maximums = [
            max_rows(catalog, table, default) for table in self._tables_read(catalog, name, arguments)
        ]
        is_full = len(rows) >= min([limit, *(each for each in maximums if each is not None)])
        return tools.number(arguments, "offset") + len(rows) if is_full else None

    def _tables_read(
        self, catalog: Catalog, name: str, arguments: Mapping[str, Any]
    ) -> Iterator[Table | None]:
        """Yield the table to read, or the table of the result type for each overload of a function."""
        if name == tools.READ:
            wanted = self._named(arguments)
            yield from (each for each in catalog.tables.values() if (each.schema, each.name) == wanted)
            return
        called = self._named(arguments, "function")
        for function in catalog.functions:
            if (function.schema, function.name) == called:
                yield catalog.tables.get(catalog.base_type(catalog.types[function.returns]).relation)


def _decoded(text: str) -> Any:
    """Parse JSON before it becomes a part of a response, because functions can return any text as JSON."""
    try:
        return EXACT_DECODER.decode(text)
    except INVALID_JSON:
        message, details = "The result is not valid JSON", "Any changes by the function have taken effect."
        raise ApiError(406, "PGRST107", message, details=details) from None


def _reject_size(size: int) -> NoReturn:
    message = f"The result has {size} bytes, more than the maximum of {MAX_BYTES}"
    raise too_much(message).replaced(hint="Select fewer columns, or set a lower limit.")
