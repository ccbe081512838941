"""Management of organizations, projects and tokens by operators, and ``GET /v2/access``."""

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
    invalid,
    require,
)
from dataapi.webhooks.management.operations import (
    ONE_ORGANIZATION,
    ORGANIZATIONS,
    READ,
    ManagementOperation,
    OperationContext,
)
from dataapi.webhooks.management.resources import ATTRIBUTES
from dataapi.webhooks.model import Organization, Permission, ProjectRecord, Token
from dataapi.webhooks.store.directory import new_token

T = TypeVar("T")

PROJECTS = f"{ONE_ORGANIZATION}/projects"
ONE_PROJECT = f"{PROJECTS}/{{project_ref}}"
TOKENS = f"{ONE_ORGANIZATION}/tokens"
TOKEN = f"{TOKENS}/{{token_id}}"

_operation = partial(ManagementOperation, permission=READ, scoped=False, operator=True)


@_operation(
    "GET", ORGANIZATIONS, "List organizations, sorted by slug", status=200,
    response=resources.many("organization", linked=True), parameters=listing.OFFSETS,
)  # fmt: skip
async def list_organizations(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    directory = context.store.directory
    return await _page(
        request, directory.organizations, directory.count_organizations, resources.organization
    )


@_operation(
    "POST", ORGANIZATIONS, "Create an organization", status=201,
    response=resources.one("organization"), body=resources.new_organization, returns_location=True,
    errors=(ErrorCode.ORGANIZATION_EXISTS,),
)  # fmt: skip
async def create_organization(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    slug = resources.checked_text(request.attributes, "slug", resources.SLUG["pattern"])
    allowed = request.attributes.get("early_access", False)
    created = await context.store.directory.create_organization(slug, early_access=allowed)
    if created is None:
        raise ManagementError(ErrorCode.ORGANIZATION_EXISTS)
    return OperationResult(resources.organization(created), location=request.child_path(slug))


@_operation(
    "GET", ONE_ORGANIZATION, "Read an organization", status=200,
    response=resources.one("organization"),
)  # fmt: skip
async def read_organization(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    return _organization(await context.store.directory.organization(request.scope.organization))


@_operation(
    "PATCH", ONE_ORGANIZATION,
    "Add an organization to the early access allowlist, or remove it", status=200,
    response=resources.one("organization"), body=resources.organization_change,
)  # fmt: skip
async def change_organization(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    allowed = request.attributes.get("early_access")
    if allowed is None:
        return _organization(await context.store.directory.organization(request.scope.organization))
    return _organization(await context.store.directory.set_early_access(request.scope.organization, allowed))


@_operation(
    "DELETE", ONE_ORGANIZATION,
    "Delete an organization, with its projects, tokens, endpoints, events and deliveries", status=200,
    response=resources.one("organization"),
)  # fmt: skip
async def delete_organization(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    return _organization(await context.store.directory.delete_organization(request.scope.organization))


@_operation(
    "GET", PROJECTS, "List an organization's projects, sorted by reference", status=200,
    response=resources.many("project", linked=True), parameters=listing.OFFSETS,
)  # fmt: skip
async def list_projects(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    slug, directory = request.scope.organization, context.store.directory
    page, count = partial(directory.projects_of, slug), partial(directory.count_projects_of, slug)
    return await _page(request, page, count, resources.project)


@_operation(
    "POST", PROJECTS, "Create a project", status=201,
    response=resources.one("project"), body=resources.new_project, returns_location=True,
    errors=(ErrorCode.PROJECT_EXISTS,),
)  # fmt: skip
async def create_project(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    ref = resources.checked_text(request.attributes, "ref", PROJECT["pattern"])
    created = await context.store.directory.create_project(ref, request.scope.organization)
    if created is None:
        raise ManagementError(ErrorCode.PROJECT_EXISTS)
    return OperationResult(resources.project(created), location=request.child_path(ref))


@_operation(
    "GET", ONE_PROJECT, "Read a project", status=200, response=resources.one("project"),
)  # fmt: skip
async def read_project(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    scope = request.scope
    return _project(await context.store.directory.project(scope.organization, scope.project or ""))


@_operation(
    "DELETE", ONE_PROJECT,
    "Delete a project, with its endpoints, events and deliveries", status=200,
    response=resources.one("project"),
)  # fmt: skip
async def delete_project(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    scope = request.scope
    return _project(await context.store.directory.delete_project(scope.organization, scope.project or ""))


@_operation(
    "GET", TOKENS, "List an organization's tokens, oldest first", status=200,
    response=resources.many("token", linked=True), parameters=listing.OFFSETS,
)  # fmt: skip
async def list_tokens(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    slug, directory = request.scope.organization, context.store.directory
    page, count = partial(directory.tokens_of, slug), partial(directory.count_tokens_of, slug)
    return await _page(request, page, count, resources.token)


@_operation(
    "POST", TOKENS, "Create a token. Only this response contains its secret", status=201,
    response=resources.one("token_with_secret"), body=resources.new_token, returns_location=True,
)  # fmt: skip
async def create_token(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    permissions = map(Permission, request.attributes["permissions"])
    expires_at, secret = _expiry(request.attributes), new_token()
    created = await context.store.directory.create_token(
        secret, request.scope.organization, permissions, expires_at
    )
    token = require(created, ErrorCode.NO_ORGANIZATION)
    return OperationResult(resources.token(token, secret), location=request.child_path(token.id))


@_operation(
    "GET", TOKEN, "Read a token", status=200, response=resources.one("token"),
    errors=(ErrorCode.NO_TOKEN,),
)  # fmt: skip
async def read_token(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    return _token(await context.store.directory.token(request.scope.organization, request.token_id))


@_operation(
    "DELETE", TOKEN, "Revoke a token", status=200, response=resources.one("token"),
    errors=(ErrorCode.NO_TOKEN,),
)  # fmt: skip
async def delete_token(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    return _token(await context.store.directory.revoke(request.token_id, request.scope.organization))


@_operation(
    "POST", f"{TOKEN}/rotate", "Replace a token with a new one", status=201,
    response=resources.one("token_with_secret"), body=resources.token_rotation, body_optional=True,
    returns_location=True, errors=(ErrorCode.NO_TOKEN,),
)  # fmt: skip
async def rotate_token(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    slug, secret = request.scope.organization, new_token()
    grace_period = int(request.attributes.get("grace_period", 0))
    created = await context.store.directory.rotate(slug, request.token_id, secret, grace_period)
    token = require(created, ErrorCode.NO_TOKEN)
    tokens = request.path.rstrip("/").rsplit("/", 2)[0]
    return OperationResult(resources.token(token, secret), location=f"{tokens}/{token.id}")


@ManagementOperation(
    "GET", "/v2/access", "Read the access that the token grants", READ, 200, resources.one("access"),
    scoped=False,
)  # fmt: skip
async def read_access(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    token = request.token
    if token.project is not None:
        return OperationResult(resources.access(token, [token.project]))
    projects = await context.store.directory.projects_of(request.scope.organization)
    return OperationResult(resources.access(token, [project.ref for project in projects]))


def _organization(organization: Organization | None) -> OperationResult:
    return OperationResult(resources.organization(require(organization, ErrorCode.NO_ORGANIZATION)))


def _project(project: ProjectRecord | None) -> OperationResult:
    return OperationResult(resources.project(require(project, ErrorCode.NO_PROJECT)))


def _token(token: Token | None) -> OperationResult:
    return OperationResult(resources.token(require(token, ErrorCode.NO_TOKEN)))


async def _page(
    request: AuthorizedRequest,
    page: Callable[[int, int], Awaitable[Iterable[T]]],
    count: Callable[[], Awaitable[int]],
    record: Callable[[T], resources.Record],
) -> OperationResult:
    limit, offset = listing.offsets(request.values)
    values = await page(limit, offset)
    links = listing.offset_links(request.path, limit, offset, await count())
    return OperationResult([record(value) for value in values], links)


def _expiry(attributes: Mapping[str, Any]) -> datetime | None:
    text = attributes.get("expires_at")
    if text is None:
        return None
    location = f"{ATTRIBUTES}/expires_at"
    expires_at = resources.timestamp(attributes, "expires_at")
    if expires_at <= datetime.now(UTC):
        raise invalid(Issue(IssueCode.VALUE, "Expected a time in the future", location))
    return expires_at
