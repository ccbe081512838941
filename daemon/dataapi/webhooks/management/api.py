"""Answers the requests of the management API: the checks, in their order, then what the operation does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from importlib.metadata import version
from typing import Any

from jsonschema import Draft202012Validator
from twisted.logger import Logger

from dataapi.errors import DatabaseError
from dataapi.web.messages import Reply, Request
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.management import body, listing, refusals
from dataapi.webhooks.management.admission import Admission, check_permission, check_syntax
from dataapi.webhooks.management.deliveries import DeliveryOperations
from dataapi.webhooks.management.endpoints import EndpointOperations
from dataapi.webhooks.management.events import EventOperations
from dataapi.webhooks.management.openapi import description
from dataapi.webhooks.management.operations import OPERATIONS, Operation, allowed, by_path
from dataapi.webhooks.management.receivers import Receivers
from dataapi.webhooks.management.task import Done, Task
from dataapi.webhooks.model import Permission
from dataapi.webhooks.store import Store

_log = Logger(namespace="dataapi.webhooks")
_JSON = ("Content-Type", "application/json; charset=utf-8")


class ManagementApi:
    """Answers every operation of the table.

    :param reason: says why webhooks do not work now, None when they do.
    """

    def __init__(
        self, store: Store, catalogue: Catalogue, receivers: Receivers, reason: Callable[[], str | None]
    ) -> None:
        self._admission = Admission(store.directory)
        self._catalogue = catalogue
        self._reason = reason
        self._by_path = by_path()
        endpoints = EndpointOperations(store, catalogue, receivers)
        deliveries = DeliveryOperations(store, catalogue)
        events = EventOperations(store, catalogue)
        self._run: Mapping[str, Callable[[Task], Awaitable[Done]]] = {
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
        """Answer a request.

        :param path: its path as the table has it.
        :param places: the variable parts of its path.
        :raises ApiError: for whatever a client may read of a failure.
        """
        methods = self._by_path[path]
        if request.method == "OPTIONS":
            return Reply(204, (("Allow", allowed(methods)),), b"")
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            raise refusals.wrong_method(request.method, allowed(methods))
        if operation.permission is None:
            return Reply(operation.status, (_JSON,), self._description)
        if self._reason() is not None:
            raise refusals.not_now()
        try:
            task = await self._task(operation, operation.permission, request, places)
            return _reply(operation, await self._run[operation.name](task))
        except DatabaseError as error:
            _log.failure("{operation} failed in the database", operation=operation.name)
            raise refusals.internal() from error

    async def _task(
        self, operation: Operation, permission: Permission, request: Request, places: Mapping[str, str]
    ) -> Task:
        """Check all but existence; what the path does not name, the body does."""
        token = await self._admission.token(request)
        slug, ref = places.get("organization_slug"), places.get("project_ref")
        check_syntax(slug, ref)
        check_permission(token, permission)
        scope = await self._admission.scope(token, slug, ref)
        await self._admission.access(token)
        document = _document(operation, request)
        if not operation.scoped:
            slug, ref = _text(document, "organization_slug"), _text(document, "project_ref")
            check_syntax(slug, ref)
            scope = await self._admission.scope(token, slug, ref)
        if operation.body is not None:
            body.check(self._validators[operation.name], document)
        values = listing.values(operation.parameters, request.query)
        return Task(token, scope, request.path, request.query, places, values, document)

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


def _document(operation: Operation, request: Request) -> Any:
    body.check_length(request)
    if operation.body is None or (operation.body_optional and not request.body):
        return {}
    return body.document(request)


def _text(document: Any, name: str) -> str | None:
    """Return an attribute of a document that was not yet checked, None when it is no text."""
    for step in ("data", "attributes", name):
        document = document.get(step) if isinstance(document, dict) else None
    return document if isinstance(document, str) else None


def _reply(operation: Operation, done: Done) -> Reply:
    members = {"data": done.data} if done.links is None else {"data": done.data, "links": done.links}
    headers = (_JSON,) if done.location is None else (_JSON, ("Location", done.location))
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    # Half a surrogate pair, which a receiver's answer may hold, cannot be written as UTF-8.
    return Reply(operation.status, headers, text.encode("utf-8", "replace"))
