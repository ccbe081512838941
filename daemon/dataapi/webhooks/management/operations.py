"""An operation of the management API: a value that is declared with its handler.

Routes, checks, the OpenAPI document and the tests follow from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

from dataapi.concurrency.tasks import WorkerThread
from dataapi.http.messages import Reply
from dataapi.webhooks.catalogue import Catalogue, CompiledSchema
from dataapi.webhooks.management.authorization import OperationResult
from dataapi.webhooks.management.errors import SURROUNDING, ErrorCode
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
"""The header that has a request's idempotency key."""

JSON = ("Content-Type", "application/json; charset=utf-8")


class OperationContext:
    """What handlers work with.

    :ivar operations: all that are declared.
    :ivar worker: runs what takes long.
    :ivar description: their OpenAPI document, once it was read.
    """

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
        """Return the schema of a body for the event types of the catalogue, compiled once."""
        if make not in self._schemas:
            self._schemas[make] = CompiledSchema(make(self.catalogue))
        return self._schemas[make]


Handler: TypeAlias = Callable[[OperationContext, Any], Awaitable[OperationResult | Reply]]
"""Carries out an operation for an ``AuthorizedRequest``, or for a ``Request`` that it checks itself."""


async def _undeclared(_context: OperationContext, _request: Any) -> OperationResult:
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ManagementOperation:
    """One operation, which decorates its handler.

    :ivar path: below the paths of both scopes; the whole path when ``scoped`` is False.
    :ivar permission: what the token must permit; None when no token is needed.
    :ivar status: of a success.
    :ivar response: the schema of a success.
    :ivar checks_itself: whether the handler makes all checks of a request.
    :ivar operator: whether only operators' tokens will do; ``or_operator`` whether they do without it, too.
    :ivar located: whether the answer has ``Location``, the path of what was created.
    :ivar body: makes the schema of the body; None when it has none.
    :ivar body_optional: whether an empty body means ``{}``.
    :ivar errors: codes beyond those that all operations of its kind have.
    :ivar name: the handler's name, also in the OpenAPI document.
    """

    method: str
    path: str
    summary: str
    permission: Permission | None
    status: int
    response: Schema
    scoped: bool = True
    checks_itself: bool = False
    operator: bool = False
    or_operator: bool = False
    located: bool = False
    parameters: tuple[QueryParameter, ...] = ()
    body: Callable[[Catalogue], Schema] | None = None
    body_optional: bool = False
    errors: tuple[ErrorCode, ...] = ()
    name: str = ""
    run: Handler = _undeclared

    def __call__(self, handler: Handler) -> ManagementOperation:
        """Return the operation with its handler."""
        first, *words = handler.__name__.split("_")
        return replace(self, run=handler, name=first + "".join(map(str.capitalize, words)))

    @property
    def repeatable(self) -> bool:
        """Whether it takes an idempotency key."""
        return (self.operator or self.or_operator) and self.method != "GET"

    @property
    def paths(self) -> tuple[str, ...]:
        return (ORGANIZATION + self.path, PROJECT + self.path) if self.scoped else (self.path,)

    def codes(self, path: str) -> tuple[ErrorCode, ...]:
        """Return the codes of all errors at one of its paths."""
        found = {*SURROUNDING, *self.errors} - {ErrorCode.NOT_FOUND}
        if self.body is None:
            found.remove(ErrorCode.WRONG_MEDIA_TYPE)
        if self.permission is not None:
            found |= {ErrorCode.UNAUTHORIZED, ErrorCode.PERMISSION_DENIED, ErrorCode.VALIDATION}
            if not self.operator:
                found.add(ErrorCode.ACCESS_DISABLED)
            for place, code, absent in _SCOPE_CODES:
                if place in path:
                    found.add(code)
                    # Other operations are no operator's.
                    found |= {absent} if self.or_operator or self.permission is Permission.READ else set()
        if self.repeatable:
            found |= {ErrorCode.KEY_USED, ErrorCode.KEY_UNANSWERED}
        return tuple(code for code in ErrorCode if code in found)


_SCOPE_CODES = (
    ("{organization_slug}", ErrorCode.INVALID_SLUG, ErrorCode.NO_ORGANIZATION),
    ("{project_ref}", ErrorCode.INVALID_REF, ErrorCode.NO_PROJECT),
)
"""The errors of a path's variable parts."""


def declared(*modules: ModuleType) -> tuple[ManagementOperation, ...]:
    """Return the operations that modules declare."""
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, ManagementOperation)
    )


def by_path(operations: Iterable[ManagementOperation]) -> Mapping[str, Mapping[str, ManagementOperation]]:
    """Return the operations of each path by method."""
    found: dict[str, dict[str, ManagementOperation]] = {}
    for operation in operations:
        for path in operation.paths:
            found.setdefault(path, {})[operation.method] = operation
    return MappingProxyType(found)
