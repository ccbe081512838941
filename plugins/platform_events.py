"""Event types of projects and organizations (docs/reference/webhooks.md, Event types)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataapi.webhooks.event_types import (
    ORGANIZATION,
    PROJECT,
    EventType,
    known_values,
    organization_schema,
    project_schema,
)
from dataapi.webhooks.interfaces import IEventCatalogue
from twisted.plugin import IPlugin
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Mapping

_REF = "abcdefghijklmnopqrst"
_ACTOR = {"user_id": "5b2c9a4e-9f0d-4a53-8f0e-3f6a4f1f7c11"}


def _project(
    name: str, description: str, members: Mapping[str, Any] | None = None, **example: object
) -> EventType:
    payload = {"organization_slug": "acme", "project_ref": _REF, "actor": _ACTOR, **example}
    return EventType(f"v1.project.{name}", description, project_schema(members), payload)


def _organization(name: str, description: str, member: str, schema: object, example: object) -> EventType:
    """Return an event type for organizations. Its payload has one additional member."""
    payload = {"organization_slug": "acme", "project_ref": None, "actor": _ACTOR, member: example}
    return EventType(f"v1.organization.{name}", description, organization_schema({member: schema}), payload)


def _invitation(name: str, description: str, *more: str) -> EventType:
    """Return an event type for an invitation. The invited person has no user ID yet."""
    members, example = _selected(_INVITATION, "email", *more)
    return _organization(
        f"member.invitation.{name}",
        description,
        "member",
        _object({"invitation": members}),
        {"invitation": example},
    )


def _member(name: str, description: str, *more: str) -> EventType:
    members, example = _selected(_MEMBER, "user_id", "primary_email", *more)
    return _organization(f"member.{name}", description, "member", members, example)


def _plan(name: str, description: str, plan: str) -> EventType:
    schema = _object({"plan": known_values("free", "pro", "team", "enterprise")})
    return _organization(f"billing.plan.{name}", description, "billing", schema, {"plan": plan})


def _selected(
    described: Mapping[str, tuple[Mapping[str, Any], object]], *names: str
) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the schema and an example of an object with the named members."""
    schemas = {name: described[name][0] for name in names}
    return _object(schemas), {name: described[name][1] for name in names}


def _endpoint(name: str, description: str) -> EventType:
    """Return an event type for an endpoint's state."""
    members = {
        "endpoint": _object(
            {
                "id": _TEXT,
                "project_ref": {**PROJECT, "type": ["string", "null"]},
                "description": _TEXT_OR_NULL,
            }
        ),
        "failing_since": _TEXT_OR_NULL,
    }
    payload = {
        "organization_slug": "acme",
        "project_ref": None,
        "actor": None,
        "endpoint": {"id": _ENDPOINT_ID, "project_ref": _REF, "description": "Orders"},
        "failing_since": None if name == "secret_rotated" else "2026-03-01T12:00:00.000Z",
    }
    return EventType(f"v1.webhook.endpoint.{name}", description, organization_schema(members), payload)


def _object(members: Mapping[str, Any], *also: str) -> dict[str, Any]:
    return {"type": [*also, "object"], "properties": members, "required": list(members)}


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_ENDPOINT_ID = "019cc2f1-5c3b-7d4e-8f1a-2b3c4d5e6f70"
_CLONE = _object({"type": {"const": "clone"}, "project_ref": PROJECT}, "null")
_OWNER = _object({"organization_slug": ORGANIZATION})
_BRANCH = {
    "branch": _object(
        {
            "ref": _TEXT,
            "name": _TEXT,
            "git_branch": {"type": ["string", "null"]},
            "is_default": {"type": "boolean"},
        }
    )
}
_ROLE = (
    # The projects are null if the role applies to all projects of the organization.
    _object(
        {
            "name": _TEXT,
            "projects": {"type": ["array", "null"], "items": _object({"ref": PROJECT})},
        }
    ),
    {"name": "Developer", "projects": [{"ref": _REF}]},
)
_EMAIL = (_TEXT, "ada@example.com")
_INVITATION = {"email": _EMAIL, "role": _ROLE}
_MEMBER = {
    "user_id": (_TEXT, "0f6d7c7e-5d0a-4f0b-9a53-2b1f6f0e8c44"),
    "primary_email": _EMAIL,
    "role": _ROLE,
}
_STATUS = known_values(
    *("ACTIVE_HEALTHY", "ACTIVE_UNHEALTHY", "COMING_UP", "GOING_DOWN", "INACTIVE", "INIT_FAILED"),
    *("PAUSE_FAILED", "PAUSING", "REMOVED", "RESIZING", "RESTARTING", "RESTORE_FAILED", "RESTORING"),
    *("UNKNOWN", "UPGRADING"),
)
_FEATURE = {"ref": "tsrqponmlkjihgfedcba", "name": "feature", "git_branch": "feature", "is_default": False}

_TYPES = (
    _project(
        "created",
        "A project was created. It may be a clone of another project.",
        {"source": _CLONE},
        source={"type": "clone", "project_ref": "tsrqponmlkjihgfedcba"},
    ),
    _project(
        "paused",
        "A project was paused.",
        {"reason": known_values("api_request", "inactivity", "other")},
        reason="inactivity",
        actor=None,
    ),
    _project("restored", "A paused project was restored."),
    _project("restarted", "A project was restarted."),
    _project("removed", "A project was removed."),
    _project(
        "transferred",
        "A project was transferred to another organization. Both organizations receive the event.",
        {"source": _OWNER, "target": _OWNER},
        source={"organization_slug": "acme"},
        target={"organization_slug": "globex"},
    ),
    _project(
        "status.changed",
        "A project's status changed.",
        {"previous_status": _STATUS, "current_status": _STATUS},
        previous_status="COMING_UP",
        current_status="ACTIVE_HEALTHY",
    ),
    _project("backup.started", "A backup of a project was started."),
    _project("branch.created", "A branch of a project was created.", _BRANCH, branch=_FEATURE),
    _project("branch.updated", "A branch of a project was changed.", _BRANCH, branch=_FEATURE),
    _project("branch.removed", "A branch of a project was removed.", _BRANCH, branch=_FEATURE),
    _invitation("created", "A user was invited to an organization.", "role"),
    _invitation("canceled", "An invitation to an organization was canceled."),
    _member("added", "A member joined an organization.", "role"),
    _member("removed", "A member left an organization, or was removed."),
    _member("role.assigned", "A role was assigned to an organization member.", "role"),
    _member("role.updated", "An organization member's role was changed.", "role"),
    _member("role.removed", "An organization member's role was removed.", "role"),
    _plan("upgraded", "An organization was upgraded to a larger plan.", "team"),
    _plan("downgraded", "An organization was downgraded to a smaller plan.", "free"),
    _endpoint(
        "failing", "A delivery failed permanently, for the first time since the endpoint's last success."
    ),
    _endpoint("recovered", "An attempt succeeded for an endpoint that was failing."),
    _endpoint("disabled", "The service disabled an endpoint because all attempts had failed for days."),
    _endpoint("secret_rotated", "An endpoint's signing secret was changed."),
)


@implementer(IPlugin, IEventCatalogue)
class PlatformEvents:
    """The shipped event catalogue."""

    def event_types(self) -> tuple[EventType, ...]:
        return _TYPES


platform_events = PlatformEvents()
