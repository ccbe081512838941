"""The operations of operators: organizations, their projects and tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from dataapi.webhooks.event_types import PROJECT
from dataapi.webhooks.management import listing, resources
from dataapi.webhooks.management.authorization import AuthorizedRequest, OperationResult
from dataapi.webhooks.management.errors import (
    ErrorCode,
    Issue,
    IssueCode,
    ManagementError,
    existing,
    invalid,
)
from dataapi.webhooks.management.resources import ATTRIBUTES
from dataapi.webhooks.model import Organization, Permission, ProjectRecord, Token
from dataapi.webhooks.store.directory import Directory, new_token

T = TypeVar("T")


class OrganizationOperations:
    """The operations by their names in the table."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.by_name: Mapping[str, Callable[[AuthorizedRequest], Awaitable[OperationResult]]] = {
            "listOrganizations": self._list_organizations,
            "createOrganization": self._create_organization,
            "readOrganization": self._read_organization,
            "changeOrganization": self._change_organization,
            "deleteOrganization": self._delete_organization,
            "listProjects": self._list_projects,
            "createProject": self._create_project,
            "readProject": self._read_project,
            "deleteProject": self._delete_project,
            "listTokens": self._list_tokens,
            "createToken": self._create_token,
            "readToken": self._read_token,
            "deleteToken": self._delete_token,
            "rotateToken": self._rotate_token,
        }

    async def _list_organizations(self, request: AuthorizedRequest) -> OperationResult:
        directory = self._directory
        return await _page(
            request, directory.organizations, directory.count_organizations, resources.organization
        )

    async def _create_organization(self, request: AuthorizedRequest) -> OperationResult:
        slug = resources.whole(request.attributes, "slug", resources.SLUG["pattern"])
        allowed = request.attributes.get("early_access", False)
        created = await self._directory.create_organization(slug, early_access=allowed)
        if created is None:
            raise ManagementError(ErrorCode.ORGANIZATION_EXISTS)
        return OperationResult(resources.organization(created), location=_below(request, slug))

    async def _read_organization(self, request: AuthorizedRequest) -> OperationResult:
        return _organization(await self._directory.organization(request.scope.organization))

    async def _change_organization(self, request: AuthorizedRequest) -> OperationResult:
        allowed = request.attributes.get("early_access")
        if allowed is None:
            return await self._read_organization(request)
        return _organization(await self._directory.allow(request.scope.organization, allowed))

    async def _delete_organization(self, request: AuthorizedRequest) -> OperationResult:
        return _organization(await self._directory.delete_organization(request.scope.organization))

    async def _list_projects(self, request: AuthorizedRequest) -> OperationResult:
        slug, directory = request.scope.organization, self._directory
        page, count = partial(directory.projects_of, slug), partial(directory.count_projects_of, slug)
        return await _page(request, page, count, resources.project)

    async def _create_project(self, request: AuthorizedRequest) -> OperationResult:
        ref = resources.whole(request.attributes, "ref", PROJECT["pattern"])
        created = await self._directory.create_project(ref, request.scope.organization)
        if created is None:
            raise ManagementError(ErrorCode.PROJECT_EXISTS)
        return OperationResult(resources.project(created), location=_below(request, ref))

    async def _read_project(self, request: AuthorizedRequest) -> OperationResult:
        scope = request.scope
        return _project(await self._directory.project(scope.organization, scope.project or ""))

    async def _delete_project(self, request: AuthorizedRequest) -> OperationResult:
        scope = request.scope
        return _project(await self._directory.delete_project(scope.organization, scope.project or ""))

    async def _list_tokens(self, request: AuthorizedRequest) -> OperationResult:
        slug, directory = request.scope.organization, self._directory
        page, count = partial(directory.tokens_of, slug), partial(directory.count_tokens_of, slug)
        return await _page(request, page, count, resources.token)

    async def _create_token(self, request: AuthorizedRequest) -> OperationResult:
        permissions = map(Permission, request.attributes["permissions"])
        expires_at, secret = _expiry(request.attributes), new_token()
        created = await self._directory.create_token(
            secret, request.scope.organization, permissions, expires_at
        )
        token = existing(created, ErrorCode.NO_ORGANIZATION)
        return OperationResult(resources.token(token, secret), location=_below(request, str(token.id)))

    async def _read_token(self, request: AuthorizedRequest) -> OperationResult:
        return _token(await self._directory.token(request.scope.organization, request.token_id))

    async def _delete_token(self, request: AuthorizedRequest) -> OperationResult:
        return _token(await self._directory.revoke(request.token_id, request.scope.organization))

    async def _rotate_token(self, request: AuthorizedRequest) -> OperationResult:
        slug, secret = request.scope.organization, new_token()
        grace_period = int(request.attributes.get("grace_period", 0))
        created = await self._directory.rotate(slug, request.token_id, secret, grace_period)
        token = existing(created, ErrorCode.NO_TOKEN)
        tokens = request.path.rstrip("/").rsplit("/", 2)[0]
        return OperationResult(resources.token(token, secret), location=f"{tokens}/{token.id}")


def _below(request: AuthorizedRequest, name: str) -> str:
    return f"{request.path.rstrip('/')}/{name}"


def _organization(found: Organization | None) -> OperationResult:
    return OperationResult(resources.organization(existing(found, ErrorCode.NO_ORGANIZATION)))


def _project(found: ProjectRecord | None) -> OperationResult:
    return OperationResult(resources.project(existing(found, ErrorCode.NO_PROJECT)))


def _token(found: Token | None) -> OperationResult:
    return OperationResult(resources.token(existing(found, ErrorCode.NO_TOKEN)))


async def _page(
    request: AuthorizedRequest,
    page: Callable[[int, int], Awaitable[Iterable[T]]],
    count: Callable[[], Awaitable[int]],
    record: Callable[[T], resources.Record],
) -> OperationResult:
    """Return the requested page of a list, with links to others."""
    limit, offset = listing.offsets(request.values)
    found = await page(limit, offset)
    links = listing.offset_links(request.path, limit, offset, await count())
    return OperationResult([record(one) for one in found], links)


def _expiry(attributes: Mapping[str, Any]) -> datetime | None:
    text = attributes.get("expires_at")
    if text is None:
        return None
    place = f"{ATTRIBUTES}/expires_at"
    found = resources.parse_timestamp(text)
    if found is None:
        raise invalid(resources.bad_timestamp(place))
    if found <= datetime.now(UTC):
        raise invalid(Issue(IssueCode.VALUE, "Expected a time in the future", place))
    return found
