"""Operations on endpoints: list, create, read, change, delete, test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataapi.webhooks.catalogue import EVERYTHING, Catalogue, pointer, sample_payload, sample_type
from dataapi.webhooks.headers import header_issues
from dataapi.webhooks.management import listing, records, refusals
from dataapi.webhooks.management.codes import IssueCode
from dataapi.webhooks.management.receivers import Receivers
from dataapi.webhooks.management.refusals import Issue
from dataapi.webhooks.management.task import Done, Task
from dataapi.webhooks.model import Endpoint, EndpointChange, NewEndpoint, Refusal, Refused
from dataapi.webhooks.signature import SecretRefused, check_secret
from dataapi.webhooks.store import Store
from dataapi.webhooks.store.endpoints import NoScope, TooManyEndpoints


class EndpointOperations:
    """What may be done with endpoints of a scope."""

    def __init__(self, store: Store, catalogue: Catalogue, receivers: Receivers) -> None:
        self._store = store
        self._catalogue = catalogue
        self._receivers = receivers

    async def page(self, task: Task) -> Done:
        """List a page of endpoints."""
        limit, offset = task.values.get("page[limit]", listing.PAGE), task.values.get("page[offset]", 0)
        shown, total = await self._store.endpoints.page(task.scope, limit, offset)
        links = listing.offset_links(task.path, limit, offset, total)
        return Done([records.endpoint(one) for one in shown], links)

    async def create(self, task: Task) -> Done:
        """Create an endpoint."""
        given = await self._judged(task.attributes)
        try:
            made = await self._store.endpoints.create(
                task.scope, NewEndpoint(**given, created_by=str(task.token.id))
            )
        except TooManyEndpoints as error:
            raise refusals.too_many_endpoints(str(error)) from None
        except NoScope:
            raise refusals.permission_denied() from None
        return Done(records.endpoint(made), location=f"{task.path.rstrip('/')}/{made.id}")

    async def read(self, task: Task) -> Done:
        """Read an endpoint."""
        return Done(records.endpoint(await self._endpoint(task)))

    async def change(self, task: Task) -> Done:
        """Change what is given."""
        given = await self._judged(task.attributes)
        if not given:
            return await self.read(task)
        identifier = task.identifier("endpoint_id", refusals.no_endpoint())
        changed = await self._store.endpoints.change(task.scope, identifier, EndpointChange(**given))
        return Done(records.endpoint(_there(changed)))

    async def delete(self, task: Task) -> Done:
        """Delete an endpoint and show what it was."""
        identifier = task.identifier("endpoint_id", refusals.no_endpoint())
        return Done(records.endpoint(_there(await self._store.endpoints.delete(task.scope, identifier))))

    async def delete_all(self, task: Task) -> Done:
        """Delete every endpoint of the scope and show what they were."""
        gone = await self._store.endpoints.delete_all(task.scope)
        return Done([records.endpoint(one) for one in gone])

    async def test(self, task: Task) -> Done:
        """Send a test event."""
        endpoint = await self._endpoint(task)
        if not endpoint.enabled:
            raise refusals.test_disabled()
        event_type = self._catalogue.types[self._type_to_test(endpoint, task.attributes.get("type"))]
        payload = sample_payload(event_type, task.scope.organization, task.scope.project)
        taken = await self._store.requests.test(task.scope, endpoint.id, event_type.type, payload)
        if not isinstance(taken, Refused):
            return Done(records.queued(taken))
        if taken.reason is Refusal.TOO_MANY:
            raise refusals.too_many_requests(taken.retry_after)
        raise refusals.test_disabled() if taken.reason is Refusal.DISABLED else refusals.no_endpoint()

    def _type_to_test(self, endpoint: Endpoint, asked: str | None) -> str:
        """Return a type that the endpoint takes; one whose catalogue is gone cannot be sent."""
        if asked is not None:
            if EVERYTHING not in endpoint.event_types and asked not in endpoint.event_types:
                raise refusals.wrong_event_type()
            return asked
        known = [name for name in endpoint.event_types if self._catalogue.may_subscribe(name)]
        if not known:
            raise refusals.wrong_event_type()
        return sample_type(known, project=endpoint.scope.project is not None)

    async def _endpoint(self, task: Task) -> Endpoint:
        identifier = task.identifier("endpoint_id", refusals.no_endpoint())
        return _there(await self._store.endpoints.read(task.scope, identifier))

    async def _judged(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes as the store takes them, judged by the rules that no schema can tell."""
        given = dict(attributes)
        issues = []
        if "signing_secret" in given:
            try:
                check_secret(given["signing_secret"])
            except SecretRefused as error:
                issues.append(
                    Issue(IssueCode.FORMAT, str(error), pointer("data", "attributes", "signing_secret"))
                )
        if "custom_headers" in given:
            given["custom_headers"] = given["custom_headers"] or {}
            for issue in header_issues(given["custom_headers"]):
                place = ("data", "attributes", "custom_headers", *([issue.name] if issue.name else []))
                issues.append(Issue(IssueCode.HEADER, issue.message, pointer(*place)))
        if issues:
            raise refusals.invalid(*issues)
        if "event_types" in given:
            given["event_types"] = tuple(dict.fromkeys(one["type"] for one in given["event_types"]))
        if "url" in given:
            await self._receivers.check(given["url"])
        return given


def _there(found: Endpoint | None) -> Endpoint:
    if found is None:
        raise refusals.no_endpoint()
    return found
