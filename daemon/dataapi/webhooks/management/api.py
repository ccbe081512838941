"""The management API: checks each request, in a fixed order, and runs the handler of its operation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from importlib.metadata import version
from typing import Any

from twisted.logger import Logger

from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply, Request
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.json_schema import CompiledSchema
from dataapi.webhooks.management import body, listing
from dataapi.webhooks.management.authorization import (
    AuthorizedRequest,
    OperationResult,
    RequestedScope,
    authorize,
)
from dataapi.webhooks.management.errors import ErrorCode, ManagementError
from dataapi.webhooks.management.handlers import EndpointUrlCheck, Handlers
from dataapi.webhooks.management.operations import (
    OPERATIONS,
    ManagementOperation,
    allowed,
    by_path,
    description,
)
from dataapi.webhooks.management.publishing import EventPublishing
from dataapi.webhooks.store import Store

_log = Logger(namespace="dataapi.webhooks")
_JSON = ("Content-Type", "application/json; charset=utf-8")


class ManagementApi:
    """Responds to every operation of the table.

    :param reason: returns why webhooks do not work now, None when they do.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        url_check: EndpointUrlCheck,
        reason: Callable[[], str | None],
    ) -> None:
        self._directory = store.directory
        self._catalogue = catalogue
        self._reason = reason
        self._by_path = by_path()
        self._publishing = EventPublishing(store, catalogue)
        handlers = Handlers(store, catalogue, url_check)
        self._run: Mapping[str, Callable[[AuthorizedRequest], Awaitable[OperationResult]]] = {
            "listEndpoints": handlers.list_endpoints,
            "createEndpoint": handlers.create_endpoint,
            "deleteEndpoints": handlers.delete_endpoints,
            "readEndpoint": handlers.read_endpoint,
            "changeEndpoint": handlers.change_endpoint,
            "deleteEndpoint": handlers.delete_endpoint,
            "testEndpoint": handlers.test_endpoint,
            "listEndpointDeliveries": handlers.list_endpoint_deliveries,
            "listDeliveries": handlers.list_deliveries,
            "readDelivery": handlers.read_delivery,
            "retryDelivery": handlers.retry_delivery,
            "recoverEndpoint": handlers.recover_endpoint,
            "listEventTypes": handlers.list_event_types,
        }

    async def answer(self, request: Request, path: str, places: Mapping[str, str]) -> Reply:
        """Respond to a request.

        :param path: its path in the table.
        :param places: the variable parts of its path.
        :raises ApiError: the request is refused or fails.
        """
        methods = self._by_path[path]
        if request.method == "OPTIONS":
            return Reply(204, (("Allow", allowed(methods)),), b"")
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            message = f"The method {request.method[:20]} is not allowed here"
            raise ManagementError(ErrorCode.WRONG_METHOD, message, headers=(("Allow", allowed(methods)),))
        if operation.permission is None:
            return Reply(operation.status, (_JSON,), self._description)
        if self._reason() is not None:
            message = "Webhooks do not work now"
            raise ManagementError(ErrorCode.UNAVAILABLE, message, headers=(("Retry-After", "5"),))
        try:
            if not operation.scoped:
                return _reply(operation, await self._publishing.publish(request))
            # Everything is checked here but existence.
            requested = RequestedScope(places.get("organization_slug"), places.get("project_ref"))
            access, scope = await authorize(self._directory, request, operation.permission, requested)
            document = _document(operation, request)
            if operation.body is not None:
                body.check(self._schemas[operation.name], document)
            values = listing.values(operation.parameters, request.query)
            authorized = AuthorizedRequest(
                access.token, scope, request.path, request.query, places, values, document
            )
            return _reply(operation, await self._run[operation.name](authorized))
        except DatabaseError as error:
            _log.failure("{operation} failed in the database", operation=operation.name)
            raise ManagementError(ErrorCode.INTERNAL, "Internal server error") from error

    @cached_property
    def _schemas(self) -> Mapping[str, CompiledSchema]:
        return {
            operation.name: CompiledSchema(operation.body(self._catalogue))
            for operation in OPERATIONS
            if operation.scoped and operation.body is not None
        }

    @cached_property
    def _description(self) -> bytes:
        return json.dumps(
            description(self._catalogue, version("dataapi-daemon")), separators=(",", ":")
        ).encode()


def _document(operation: ManagementOperation, request: Request) -> Any:
    if operation.body is None or (operation.body_optional and not request.body):
        body.check_length(request)
        return {}
    return body.document(request)


def _reply(operation: ManagementOperation, result: OperationResult) -> Reply:
    members = {"data": result.data} if result.links is None else {"data": result.data, "links": result.links}
    headers = (_JSON,) if result.location is None else (_JSON, ("Location", result.location))
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate, which a receiver's response may hold, cannot be encoded as UTF-8.
    return Reply(operation.status, headers, text.encode("utf-8", "replace"))
