"""Operations on events: what types there are, and publishing one."""

from __future__ import annotations

from dataapi.webhooks.catalogue import Catalogue, pointer
from dataapi.webhooks.event_types import completed
from dataapi.webhooks.management import records, refusals
from dataapi.webhooks.management.codes import IssueCode
from dataapi.webhooks.management.moments import read_moment
from dataapi.webhooks.management.refusals import Issue, ManagementError
from dataapi.webhooks.management.task import Done, Task
from dataapi.webhooks.model import NewEvent
from dataapi.webhooks.store import Store
from dataapi.webhooks.store.publishing import CannotPublish, Problem

_WRITTEN = ("/organization_slug", "/project_ref")
"""What is written into every payload, so that it is the body's attributes that are wrong."""


class EventOperations:
    """What may be asked of the catalogue, and told to it."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue

    async def types(self, _task: Task) -> Done:
        """List all event types."""
        return Done([records.event_type(one) for one in self._catalogue.types.values()])

    async def publish(self, task: Task) -> Done:
        """Raise an event."""
        given = task.attributes
        payload = completed(given.get("payload", {}), task.scope.organization, task.scope.project)
        issues = [
            Issue(IssueCode.PAYLOAD, found.message, _place(found.pointer))
            for found in self._catalogue.issues(given["type"], payload)
        ]
        timestamp = None
        if "timestamp" in given:
            timestamp = read_moment(given["timestamp"])
            if timestamp is None:
                place = pointer("data", "attributes", "timestamp")
                issues.append(Issue(IssueCode.FORMAT, "Expected a time such as 2026-01-31T12:00:00Z", place))
        if issues:
            raise refusals.invalid(*issues)
        key = task.document["meta"]["idempotency_key"]
        try:
            raised = await self._store.publisher.publish(
                NewEvent(given["type"], task.scope, payload, key, timestamp)
            )
        except CannotPublish as error:
            raise _refused(error) from None
        return Done(records.ingress(raised))


def _place(found: str) -> str:
    return pointer("data", "attributes") + (found if found in _WRITTEN else f"/payload{found}")


def _refused(error: CannotPublish) -> ManagementError:
    """Return the error for an event that the store refuses, or whose scope changed since authorization."""
    if error.problem is Problem.NOT_ALLOWED:
        return refusals.access_disabled()
    if error.problem is Problem.RESERVED_NAME:
        return refusals.invalid(Issue(IssueCode.RESERVED, str(error), _place(pointer("is_test"))))
    if error.problem is Problem.MALFORMED:
        return refusals.invalid(Issue(IssueCode.INVALID, str(error), pointer("data", "attributes")))
    return refusals.permission_denied()
