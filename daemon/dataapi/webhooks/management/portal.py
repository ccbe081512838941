"""Portal links: tokens with limited validity and scope, for the customer portal."""

from __future__ import annotations

from dataclasses import replace

from dataapi.webhooks.management import resources
from dataapi.webhooks.management.authorization import AuthorizedRequest, OperationResult
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError
from dataapi.webhooks.management.operations import (
    ONE_ORGANIZATION,
    READ,
    WRITE,
    ManagementOperation,
    OperationContext,
)
from dataapi.webhooks.management.resources import ATTRIBUTES
from dataapi.webhooks.model import Permission, Portal, Token
from dataapi.webhooks.store.directory import new_token


@ManagementOperation(
    "POST", f"{ONE_ORGANIZATION}/portal-links", "Create a link to the customer portal", WRITE, 201,
    resources.one("portal_link"), scoped=False, allows_operator=True, body=resources.new_portal_link,
    body_optional=True, errors=(ErrorCode.NO_PROJECT,),
)  # fmt: skip
async def create_portal_link(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    if request.token.portal is not None:
        # The new link could outlive the current one.
        raise ManagementError(ErrorCode.PERMISSION_DENIED, "A portal link cannot create another portal link")
    attributes, secret, directory = request.attributes, new_token(), context.store.directory
    scope = replace(request.scope, project=attributes.get("project_ref"))
    if scope.project is not None and await directory.project(scope.organization, scope.project) is None:
        issue = Issue(IssueCode.VALUE, "The organization has no such project", f"{ATTRIBUTES}/project_ref")
        raise ManagementError(ErrorCode.NO_PROJECT, issues=(issue,))
    permissions = [READ] if attributes.get("read_only") else [READ, WRITE]
    name = resources.checked_text(attributes, "name", resources.PLAIN) if "name" in attributes else ""
    color = (
        resources.checked_text(attributes, "color", resources.COLOR["pattern"])
        if "color" in attributes
        else ""
    )
    portal = Portal(name, color.lower(), attributes.get("signing_secrets", False))
    seconds = int(attributes.get("expires_in", resources.LINK_SECONDS))
    created = await directory.create_link(secret, scope, permissions, seconds, portal)
    if created is None:
        raise ManagementError(ErrorCode.ACCESS_DISABLED)
    return OperationResult(resources.portal_link(created, secret))


def shows_header_values(token: Token) -> bool:
    """Whether a token may read the values of custom headers. Many values are secrets."""
    return token.portal is None or Permission.WRITE in token.permissions


def check_secrets(request: AuthorizedRequest) -> None:
    portal = request.token.portal
    if portal is not None and not portal.signing_secrets and "signing_secret" in request.attributes:
        raise ManagementError(
            ErrorCode.PERMISSION_DENIED, "The portal link does not permit setting signing secrets"
        )
