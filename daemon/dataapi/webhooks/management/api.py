"""The management API: checks requests in a fixed order and runs the handlers of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from twisted.logger import Logger

from dataapi.http import strict_json
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply, Request
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.management import (
    body,
    deliveries,
    endpoints,
    listing,
    openapi,
    operations,
    organizations,
    portal,
    publishing,
)
from dataapi.webhooks.management.authorization import (
    AuthorizedRequest,
    OperationResult,
    RequestedScope,
    authorize,
)
from dataapi.webhooks.management.errors import ErrorCode, ManagementError
from dataapi.webhooks.management.idempotency import RepeatableRequests, keyed_request
from dataapi.webhooks.management.operations import JSON, ManagementOperation, OperationContext
from dataapi.webhooks.management.url_check import EndpointUrlCheck
from dataapi.webhooks.secrets import NoEncryptionKey
from dataapi.webhooks.store import Store

_log = Logger(namespace="dataapi.webhooks")

OPERATIONS = operations.declared_operations(endpoints, deliveries, organizations, portal, publishing, openapi)
BY_PATH = operations.by_path(OPERATIONS)

Reason: TypeAlias = Callable[[], str | None]
"""Returns the reason why webhooks are unavailable, or None."""


class ManagementApi:
    """Serves all declared operations."""

    enabled = True
    portal_origins: Sequence[str] = ()

    def __init__(
        self, store: Store, catalogue: Catalogue, url_check: EndpointUrlCheck, reason: Reason
    ) -> None:
        self._context = OperationContext(OPERATIONS, store, catalogue, url_check)
        self._directory = store.directory
        self._reason = reason
        self._repeatable = RepeatableRequests(store.stored_responses)

    async def handle(self, request: Request, path: str, path_parameters: Mapping[str, str]) -> Reply:
        """Return the response to a request. ``path`` is the path template of the operation.

        :raises ApiError: the request failed.
        """
        methods = BY_PATH[path]
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            return _method_not_allowed(request, methods)
        if operation.permission is not None and self._reason() is not None:
            message = "Webhooks are unavailable"
            raise ManagementError(ErrorCode.UNAVAILABLE, message, headers=(("Retry-After", "5"),))
        try:
            if operation.custom_checks:
                return _reply(operation, await operation.run(self._context, request))
            return await self._checked(operation, request, path_parameters)
        except NoEncryptionKey as error:
            _log.error("{operation} failed: {reason}", operation=operation.name, reason=str(error))
            message = "Webhooks are not fully configured. The log contains the details"
            raise ManagementError(ErrorCode.UNAVAILABLE, message) from error
        except DatabaseError as error:
            _log.failure("{operation} failed in the database", operation=operation.name)
            raise ManagementError(ErrorCode.INTERNAL, "Internal server error") from error

    async def _checked(
        self, operation: ManagementOperation, request: Request, path_parameters: Mapping[str, str]
    ) -> Reply:
        assert operation.permission is not None
        requested = RequestedScope(
            path_parameters.get("organization_slug"), path_parameters.get("project_ref")
        )
        access, scope = await authorize(
            self._directory,
            request,
            operation.permission,
            requested,
            operator=operation.operator,
            allows_operator=operation.allows_operator,
        )
        document = _document(operation, request)
        if operation.body is not None:
            body.check(self._context.schema(operation.body), document)
        values = listing.parse_query(operation.parameters, request.query)
        authorized = AuthorizedRequest(
            access.token, scope, request.path, request.query, path_parameters, values, document
        )

        async def reply() -> Reply:
            missing = requested.missing(access)
            if missing is not None:
                raise ManagementError(missing)
            return _reply(operation, await operation.run(self._context, authorized))

        repeated = keyed_request(request, access.token, document) if operation.repeatable else None
        return await (reply() if repeated is None else self._repeatable.respond(repeated, reply))


def _method_not_allowed(request: Request, methods: Mapping[str, ManagementOperation]) -> Reply:
    head = ("HEAD",) if "GET" in methods else ()
    allow = (("Allow", ", ".join((*methods, *head, "OPTIONS"))),)
    if request.method == "OPTIONS":
        return Reply(204, allow, b"")
    message = f"The method {request.method[:20]} is not allowed for this path"
    raise ManagementError(ErrorCode.WRONG_METHOD, message, headers=allow)


def _document(operation: ManagementOperation, request: Request) -> Any:
    if operation.body is None or (operation.body_optional and not request.body):
        body.check_length(request)
        return {}
    return body.document(request)


def _reply(operation: ManagementOperation, result: OperationResult | Reply) -> Reply:
    if isinstance(result, Reply):
        return result
    members = {"data": result.data} if result.links is None else {"data": result.data, "links": result.links}
    headers = (JSON,) if result.location is None else (JSON, ("Location", result.location))
    text = strict_json.encode(members, ensure_ascii=False)
    # Responses from receivers may contain lone surrogates. UTF-8 cannot encode them.
    return Reply(operation.status, headers, text.encode("utf-8", "replace"))
