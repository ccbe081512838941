"""Authorization of requests.

The checks are, in this order: token, syntax of the scope, permission, organization, early access.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dataapi.http.messages import Request
from dataapi.webhooks import identifiers
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError
from dataapi.webhooks.model import Permission, Scope, Token, TokenAccess
from dataapi.webhooks.store.directory import Directory

_SLUG = re.compile(r"[A-Za-z0-9_-]+")
_REF = re.compile(r"[a-z]{20}")
_BEARER = re.compile(r"bearer +([!-~]{1,512}) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """A request that passed all checks except for the existence of its resources.

    :ivar scope: organization and project. The organization is "" if an operator's operation belongs to no
        organization.
    :ivar query: raw query string. ``values`` contains the parsed parameters.
    :ivar document: validated body, or ``{}`` if the operation has none.
    """

    token: Token
    scope: Scope
    path: str
    query: str
    path_parameters: Mapping[str, str]
    values: Mapping[str, Any]
    document: Mapping[str, Any]

    @property
    def attributes(self) -> Mapping[str, Any]:
        attributes: Mapping[str, Any] = self.document.get("data", {}).get("attributes", {})
        return attributes

    @property
    def endpoint_id(self) -> UUID:
        return self._identifier("endpoint_id", ErrorCode.NO_ENDPOINT)

    @property
    def delivery_id(self) -> UUID:
        return self._identifier("delivery_id", ErrorCode.NO_DELIVERY)

    @property
    def event_id(self) -> UUID:
        return self._identifier("event_id", ErrorCode.NO_EVENT)

    @property
    def token_id(self) -> UUID:
        return self._identifier("token_id", ErrorCode.NO_TOKEN)

    def child_path(self, name: UUID | str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def _identifier(self, name: str, absent: ErrorCode) -> UUID:
        identifier = identifiers.parse(self.path_parameters[name])
        if identifier is None:
            raise ManagementError(absent)
        return identifier


@dataclass(frozen=True, slots=True)
class OperationResult:
    """Result of an operation: data, links of a list, and the path of a created resource."""

    data: Any
    links: Mapping[str, str | None] | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class RequestedScope:
    """The scope in a request. ``pointer`` is the JSON pointer of its event in a list, or None."""

    slug: str | None = None
    ref: str | None = None
    pointer: str | None = None

    @property
    def valid_slug(self) -> str | None:
        return self.slug if self.slug is not None and _SLUG.fullmatch(self.slug) else None

    @property
    def valid_refs(self) -> tuple[str, ...]:
        return (self.ref,) if self.ref is not None and _REF.fullmatch(self.ref) else ()

    def check_syntax(self) -> None:
        if self.slug is not None and not _SLUG.fullmatch(self.slug):
            raise self._error(ErrorCode.INVALID_SLUG)
        if self.ref is not None and not _REF.fullmatch(self.ref):
            raise self._error(ErrorCode.INVALID_REF)

    def resolve(self, access: TokenAccess) -> Scope:
        """Return the scope if the token may access it. ``missing`` checks whether the scope exists."""
        organization = access.token.organization
        if organization is None:
            return Scope(self.slug or access.projects.get(self.ref or "", ""), self.ref)
        allowed_project = access.token.project
        foreign_project = self.ref is not None and self.ref not in access.projects
        if self.slug not in (None, organization) or foreign_project:
            raise self._error(ErrorCode.PERMISSION_DENIED, "The token belongs to another organization")
        if allowed_project is not None and (self.slug is not None or self.ref not in (None, allowed_project)):
            raise self._error(ErrorCode.PERMISSION_DENIED, "The portal link is limited to another scope")
        return Scope(organization, self.ref)

    def missing(self, access: TokenAccess) -> ErrorCode | None:
        if self.slug is not None and not access.organization_exists:
            return ErrorCode.NO_ORGANIZATION
        owner = access.projects.get(self.ref or "")
        if self.ref is not None and (owner is None or self.slug not in (None, owner)):
            return ErrorCode.NO_PROJECT
        return None

    def _error(self, code: ErrorCode, message: str | None = None) -> ManagementError:
        issue = () if self.pointer is None else (Issue(IssueCode.INVALID, code.meaning, self.pointer),)
        return ManagementError(code, message, issues=issue)


def bearer_token(request: Request) -> str | None:
    match = _BEARER.fullmatch(request.headers.get("authorization", ""))
    return match and match[1]


async def authorize(
    directory: Directory,
    request: Request,
    permission: Permission,
    requested: RequestedScope = RequestedScope(),
    refs: Collection[str] = (),
    *,
    operator: bool = False,
    allows_operator: bool = False,
) -> tuple[TokenAccess, Scope]:
    """Return the access that the request's token grants, and the requested scope.

    :param refs: additional projects to look up for ``TokenAccess.projects``.
    :param allows_operator: whether an operator's token is accepted even if it lacks ``permission``.
    :raises ManagementError: see docs/reference/webhooks.md, Scopes and tokens.
    """
    token = bearer_token(request)
    access = token and await directory.access(token, requested.valid_slug, (*requested.valid_refs, *refs))
    if not access:
        missing = "A personal access token is required: Authorization: Bearer dapat_..."
        unknown = "The personal access token is unknown, expired or revoked"
        challenge = (("WWW-Authenticate", "Bearer"),)
        raise ManagementError(ErrorCode.UNAUTHORIZED, unknown if token else missing, headers=challenge)
    requested.check_syntax()
    if operator and not access.token.operator:
        raise ManagementError(ErrorCode.PERMISSION_DENIED, "The operation requires an operator's token")
    if permission not in access.token.permissions and not (allows_operator and access.token.operator):
        raise ManagementError(ErrorCode.PERMISSION_DENIED, f"The token lacks the permission {permission}")
    scope = requested.resolve(access)
    if not access.early_access:
        raise ManagementError(ErrorCode.ACCESS_DISABLED)
    return access, scope
