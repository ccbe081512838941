"""The management API: checks each request, in a fixed order, and runs the handler of its operation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from importlib.metadata import version
from typing import Any

from jsonschema import Draft202012Validator
from twisted.logger import Logger

from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply, Request
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.management import body, errors, listing
from dataapi.webhooks.management.authorization import (
    AuthorizedRequest,
    Authorizer,
    OperationResult,
    check_permission,
    check_syntax,
)
from dataapi.webhooks.management.handlers import (
    DeliveryHandlers,
    EndpointHandlers,
    EndpointUrlCheck,
    EventHandlers,
)
from dataapi.webhooks.management.openapi import description
from dataapi.webhooks.management.operations import OPERATIONS, ManagementOperation, allowed, by_path
from dataapi.webhooks.model import Permission
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
        self._authorizer = Authorizer(store.directory)
        self._catalogue = catalogue
        self._reason = reason
        self._by_path = by_path()
        endpoints = EndpointHandlers(store, catalogue, url_check)
        deliveries = DeliveryHandlers(store, catalogue)
        events = EventHandlers(store, catalogue)
        self._run: Mapping[str, Callable[[AuthorizedRequest], Awaitable[OperationResult]]] = {
            "listEndpoints": endpoints.page,
            "createEndpoint": endpoints.create,
            "deleteEndpoints": endpoints.delete_all,
            "readEndpoint": endpoints.read,
            "changeEndpoint": endpoints.change,
            "deleteEndpoint": endpoints.delete,
            "testEndpoint": endpoints.test,
            "listEndpointDeliveries": deliveries.page_of_endpoint,
            "listDeliveries": deliveries.page,
            "readDelivery": deliveries.read,
            "retryDelivery": deliveries.retry,
            "recoverEndpoint": deliveries.recover,
            "listEventTypes": events.types,
            "publishEvent": events.publish,
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
            raise errors.wrong_method(request.method, allowed(methods))
        if operation.permission is None:
            return Reply(operation.status, (_JSON,), self._description)
        if self._reason() is not None:
            raise errors.not_now()
        try:
            authorized = await self._authorize(operation, operation.permission, request, places)
            return _reply(operation, await self._run[operation.name](authorized))
        except DatabaseError as error:
            _log.failure("{operation} failed in the database", operation=operation.name)
            raise errors.internal() from error

    async def _authorize(
        self,
        operation: ManagementOperation,
        permission: Permission,
        request: Request,
        places: Mapping[str, str],
    ) -> AuthorizedRequest:
        """Check everything but existence; where the path has no scope, the body does."""
        token = await self._authorizer.token(request)
        slug, ref = places.get("organization_slug"), places.get("project_ref")
        check_syntax(slug, ref)
        check_permission(token, permission)
        scope = await self._authorizer.scope(token, slug, ref)
        await self._authorizer.access(token)
        document = _document(operation, request)
        if not operation.scoped:
            slug, ref = _text(document, "organization_slug"), _text(document, "project_ref")
            check_syntax(slug, ref)
            scope = await self._authorizer.scope(token, slug, ref)
        if operation.body is not None:
            body.check(self._validators[operation.name], document)
        values = listing.values(operation.parameters, request.query)
        return AuthorizedRequest(token, scope, request.path, request.query, places, values, document)

    @cached_property
    def _validators(self) -> Mapping[str, Draft202012Validator]:
        return {
            operation.name: Draft202012Validator(operation.body(self._catalogue))
            for operation in OPERATIONS
            if operation.body is not None
        }

    @cached_property
    def _description(self) -> bytes:
        return json.dumps(description(self._catalogue, version("dataapi")), separators=(",", ":")).encode()


def _document(operation: ManagementOperation, request: Request) -> Any:
    body.check_length(request)
    if operation.body is None or (operation.body_optional and not request.body):
        return {}
    return body.document(request)


def _text(document: Any, name: str) -> str | None:
    """Return a text attribute of a document that is not validated yet, None without one."""
    for step in ("data", "attributes", name):
        document = document.get(step) if isinstance(document, dict) else None
    return document if isinstance(document, str) else None


def _reply(operation: ManagementOperation, result: OperationResult) -> Reply:
    members = {"data": result.data} if result.links is None else {"data": result.data, "links": result.links}
    headers = (_JSON,) if result.location is None else (_JSON, ("Location", result.location))
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate, which a receiver's response may hold, cannot be encoded as UTF-8.
    return Reply(operation.status, headers, text.encode("utf-8", "replace"))
