"""Declarations of operations, from which routes, checks and the OpenAPI document are derived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

from dataapi.concurrency.tasks import WorkerThread
from dataapi.http.messages import Reply
from dataapi.webhooks.catalogue import Catalogue, CompiledSchema
from dataapi.webhooks.management.authorization import OperationResult
from dataapi.webhooks.management.errors import COMMON_ERRORS, ErrorCode
from dataapi.webhooks.management.listing import QueryParameter
from dataapi.webhooks.management.resources import Schema
from dataapi.webhooks.management.url_check import EndpointUrlCheck
from dataapi.webhooks.model import Permission
from dataapi.webhooks.store import Store

ORGANIZATIONS = "/v2/organizations"
ONE_ORGANIZATION = f"{ORGANIZATIONS}/{{organization_slug}}"
ORGANIZATION = f"{ONE_ORGANIZATION}/webhooks"
PROJECT = "/v2/projects/{project_ref}/webhooks"

READ, WRITE, PUBLISH = Permission.READ, Permission.WRITE, Permission.PUBLISH

IDEMPOTENCY_KEY = "Idempotency-Key"

JSON = ("Content-Type", "application/json; charset=utf-8")


class OperationContext:
    """Objects that handlers use. ``worker`` runs long computations."""

    def __init__(
        self,
        operations: tuple[ManagementOperation, ...],
        store: Store,
        catalogue: Catalogue,
        url_check: EndpointUrlCheck,
    ) -> None:
        self.operations = operations
        self.store = store
        self.catalogue = catalogue
        self.url_check = url_check
        self.worker = WorkerThread()
        self.description: bytes | None = None
        self._schemas: dict[Callable[[Catalogue], Schema], CompiledSchema] = {}

    def schema(self, make: Callable[[Catalogue], Schema]) -> CompiledSchema:
        if make not in self._schemas:
            self._schemas[make] = CompiledSchema(make(self.catalogue))
        return self._schemas[make]


Handler: TypeAlias = Callable[[OperationContext, Any], Awaitable[OperationResult | Reply]]
"""Runs an operation for an ``AuthorizedRequest``, or for a ``Request`` if it has ``custom_checks``."""


async def _undeclared(_context: OperationContext, _request: Any) -> OperationResult:
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ManagementOperation:
    """An operation of the management API. Used as a decorator of its handler.

    :ivar path: path after the organization or project, or the whole path if ``scoped`` is False.
    :ivar permission: required permission, or None if no token is required.
    :ivar custom_checks: whether the handler checks the request itself.
    :ivar allows_operator: whether an operator's token is accepted even if it lacks ``permission``.
    :ivar returns_location: whether the response has a ``Location`` header.
    :ivar body_optional: whether an empty body is equivalent to ``{}``.
    :ivar errors: errors that the other attributes do not imply.
    :ivar name: name of the handler in camel case, and operation ID in the OpenAPI document.
    """

    method: str
    path: str
    summary: str
    permission: Permission | None
    status: int
    response: Schema
    scoped: bool = True
    custom_checks: bool = False
    operator: bool = False
    allows_operator: bool = False
    returns_location: bool = False
    parameters: tuple[QueryParameter, ...] = ()
    body: Callable[[Catalogue], Schema] | None = None
    body_optional: bool = False
    errors: tuple[ErrorCode, ...] = ()
    name: str = ""
    run: Handler = _undeclared

    def __call__(self, handler: Handler) -> ManagementOperation:
        first, *words = handler.__name__.split("_")
        return replace(self, run=handler, name=first + "".join(map(str.capitalize, words)))

    @property
    def repeatable(self) -> bool:
        return (self.operator or self.allows_operator) and self.method != "GET"

    @property
    def paths(self) -> tuple[str, ...]:
        return (ORGANIZATION + self.path, PROJECT + self.path) if self.scoped else (self.path,)

    def codes(self, path: str) -> tuple[ErrorCode, ...]:
        codes = {*COMMON_ERRORS, *self.errors} - {ErrorCode.NOT_FOUND}
        if self.body is None:
            codes.remove(ErrorCode.WRONG_MEDIA_TYPE)
        if self.permission is not None:
            codes |= {ErrorCode.UNAUTHORIZED, ErrorCode.PERMISSION_DENIED, ErrorCode.VALIDATION}
            if not self.operator:
                codes.add(ErrorCode.ACCESS_DISABLED)
            for parameter, code, absent in _SCOPE_CODES:
                if parameter in path:
                    codes.add(code)
                    # Only operators' tokens can cause this error, and READ is their only permission.
                    codes |= {absent} if self.allows_operator or self.permission is Permission.READ else set()
        if self.repeatable:
            codes |= {ErrorCode.KEY_USED, ErrorCode.KEY_UNANSWERED}
        return tuple(code for code in ErrorCode if code in codes)


_SCOPE_CODES = (
    ("{organization_slug}", ErrorCode.INVALID_SLUG, ErrorCode.NO_ORGANIZATION),
    ("{project_ref}", ErrorCode.INVALID_REF, ErrorCode.NO_PROJECT),
)
"""Errors for each path parameter: if its value is malformed, and if there is no such object."""


def declared_operations(*modules: ModuleType) -> tuple[ManagementOperation, ...]:
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, ManagementOperation)
    )


def by_path(operations: Iterable[ManagementOperation]) -> Mapping[str, Mapping[str, ManagementOperation]]:
    paths: dict[str, dict[str, ManagementOperation]] = {}
    for operation in operations:
        for path in operation.paths:
            paths.setdefault(path, {})[operation.method] = operation
    return MappingProxyType(paths)
