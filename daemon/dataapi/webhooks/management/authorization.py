"""Authorization: token, syntax of the scope, permission, organization and early access, in this order."""

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
    """A request that passed every check but that of existence.

    :ivar scope: without an organization, "", for an operator's operation on none.
    :ivar path: decoded.
    :ivar query: raw; ``values`` has its parsed parameters.
    :ivar places: the variable parts of the path.
    :ivar document: the body, which is valid by the operation's schema; ``{}`` if the operation has none.
    """

    token: Token
    scope: Scope
    path: str
    query: str
    places: Mapping[str, str]
    values: Mapping[str, Any]
    document: Mapping[str, Any]

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the body's record."""
        found: Mapping[str, Any] = self.document.get("data", {}).get("attributes", {})
        return found

    @property
    def endpoint_id(self) -> UUID:
        """The endpoint that the path names."""
        return self._identifier("endpoint_id", ErrorCode.NO_ENDPOINT)

    @property
    def delivery_id(self) -> UUID:
        """The delivery that the path names."""
        return self._identifier("delivery_id", ErrorCode.NO_DELIVERY)

    @property
    def event_id(self) -> UUID:
        """The event that the path names."""
        return self._identifier("event_id", ErrorCode.NO_EVENT)

    @property
    def token_id(self) -> UUID:
        """The token that the path names."""
        return self._identifier("token_id", ErrorCode.NO_TOKEN)

    def below(self, name: UUID | str) -> str:
        """Return the path of what an operation on a list created."""
        return f"{self.path.rstrip('/')}/{name}"

    def _identifier(self, place: str, absent: ErrorCode) -> UUID:
        found = identifiers.parse(self.places[place])
        if found is None:
            raise ManagementError(absent)
        return found


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What an operation returns: data, the links of a list, and the path of what was created."""

    data: Any
    links: Mapping[str, str | None] | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class RequestedScope:
    """The scope that a request names; an event of a list names it at ``pointer``."""

    slug: str | None = None
    ref: str | None = None
    pointer: str | None = None

    @property
    def valid_slug(self) -> str | None:
        """The slug, if there is one and it may be looked up."""
        return self.slug if self.slug is not None and _SLUG.fullmatch(self.slug) else None

    @property
    def valid_refs(self) -> tuple[str, ...]:
        """The reference, if there is one and it may be looked up."""
        return (self.ref,) if self.ref is not None and _REF.fullmatch(self.ref) else ()

    def check_syntax(self) -> None:
        """Check the slug and the reference."""
        if self.slug is not None and not _SLUG.fullmatch(self.slug):
            raise self._error(ErrorCode.INVALID_SLUG)
        if self.ref is not None and not _REF.fullmatch(self.ref):
            raise self._error(ErrorCode.INVALID_REF)

    def resolve(self, access: TokenAccess) -> Scope:
        """Return the scope, which must be of the token's organization; see also ``missing``."""
        organization = access.token.organization
        if organization is None:
            return Scope(self.slug or access.projects.get(self.ref or "", ""), self.ref)
        only = access.token.project
        foreign_project = self.ref is not None and self.ref not in access.projects
        if self.slug not in (None, organization) or foreign_project:
            raise self._error(ErrorCode.PERMISSION_DENIED, "The token is for another organization")
        if only is not None and (self.slug is not None or self.ref not in (None, only)):
            raise self._error(ErrorCode.PERMISSION_DENIED, "The portal link is for one project alone")
        return Scope(organization, self.ref)

    def missing(self, access: TokenAccess) -> ErrorCode | None:
        """Return which part of the scope does not exist, which only an operator's token is told."""
        if self.slug is not None and not access.organization_exists:
            return ErrorCode.NO_ORGANIZATION
        owner = access.projects.get(self.ref or "")
        if self.ref is not None and (owner is None or self.slug not in (None, owner)):
            return ErrorCode.NO_PROJECT
        return None

    def _error(self, code: ErrorCode, message: str | None = None) -> ManagementError:
        issue = () if self.pointer is None else (Issue(IssueCode.INVALID, code.meaning, self.pointer),)
        return ManagementError(code, message, issues=issue)


def bearer(request: Request) -> str | None:
    """Return the token in the headers of a request, None without a well-formed one."""
    found = _BEARER.fullmatch(request.headers.get("authorization", ""))
    return found and found[1]


async def authorize(
    directory: Directory,
    request: Request,
    permission: Permission,
    requested: RequestedScope = RequestedScope(),
    refs: Collection[str] = (),
    *,
    operator: bool = False,
    or_operator: bool = False,
) -> tuple[TokenAccess, Scope]:
    """Return what the request's token may do, and the scope that the request names.

    :param refs: further projects that ``TokenAccess.projects`` is to list if they are the organization's.
    :param operator: whether only an operator's token will do.
    :param or_operator: whether an operator's will do, too, which does not have the permission.
    :raises ManagementError: as docs/reference/webhooks.md, Scopes and tokens, has it.
    """
    token = bearer(request)
    access = token and await directory.access(token, requested.valid_slug, (*requested.valid_refs, *refs))
    if not access:
        missing = "A personal access token is needed: Authorization: Bearer dapat_..."
        unknown = "The personal access token is not known, has expired or was revoked"
        challenge = (("WWW-Authenticate", "Bearer"),)
        raise ManagementError(ErrorCode.UNAUTHORIZED, unknown if token else missing, headers=challenge)
    requested.check_syntax()
    if operator and not access.token.operator:
        raise ManagementError(ErrorCode.PERMISSION_DENIED, "The operation needs an operator's token")
    if permission not in access.token.permissions and not (or_operator and access.token.operator):
        raise ManagementError(ErrorCode.PERMISSION_DENIED, f"The token lacks the permission {permission}")
    scope = requested.resolve(access)
    if not access.early_access:
        raise ManagementError(ErrorCode.ACCESS_DISABLED)
    return access, scope
