"""Every operation returns each error code that its OpenAPI description lists.

The tests' client checks the reverse: it rejects codes that the description does not list.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from dataapi.http.messages import Request
from dataapi.webhooks.management.api import OPERATIONS
from dataapi.webhooks.management.errors import COMMON_ERRORS, ErrorCode
from dataapi.webhooks.management.idempotency import keyed_request
from dataapi.webhooks.management.limits import MAX_READ
from dataapi.webhooks.management.operations import ManagementOperation
from dataapi.webhooks.model import Permission
from dataapi.webhooks.store.endpoints import MAX_ENDPOINTS
from support.management import (
    CLOSED,
    CLOSED_REF,
    NO_SUCH,
    Answer,
    Management,
    document,
    endpoint,
    event,
)
from support.webhooks import ACME, REF

SERVER_CODES = {
    ErrorCode.BAD_REQUEST,
    ErrorCode.TARGET_TOO_LONG,
    ErrorCode.HEADERS_TOO_LARGE,
    ErrorCode.INTERNAL,
    ErrorCode.TIMEOUT,
}
"""Codes of internal errors and of the HTTP server. They do not depend on the operation."""

BODIES: dict[str, dict[str, Any]] = {
    "createEndpoint": endpoint(),
    "changeEndpoint": document("endpoint", enabled=True),
    "testEndpoint": {},
    "recoverEndpoint": document("recovery", since="2026-01-01T00:00:00Z"),
    "publishEvent": event("key"),
    "createOrganization": document("organization", slug="brand-new"),
    "changeOrganization": document("organization", early_access=True),
    "createProject": document("project", ref="brandnewbrandnewbran"),
    "createToken": document("token", permissions=["webhooks:read"]),
    "rotateToken": {},
    "createPortalLink": {},
}
URLS = {
    ErrorCode.URL_INVALID: "ftp://receiver.example/",
    ErrorCode.URL_RESERVED: "https://inside.example/",
    ErrorCode.URL_UNRESOLVABLE: "https://nowhere.example/",
}
CASES = [
    (operation, path, code)
    for operation in OPERATIONS
    for path in operation.paths
    for code in operation.codes(path)
    if code not in SERVER_CODES
    and (operation.permission is not None or code not in (ErrorCode.UNAVAILABLE, ErrorCode.TOO_LARGE))
]

PATH_IDS = ("endpoint_id", "delivery_id", "event_id")
"""Path parameters, except the scope."""


class OperationRequest:
    """A valid request to an operation. ``change`` makes it invalid."""

    def __init__(self, api: Management, operation: ManagementOperation, path: str) -> None:
        self._api = api
        self._operation = operation
        self._path = path
        self._method = operation.method
        self._parameters = {"organization_slug": ACME.organization, "project_ref": REF}
        self._body: Any = BODIES.get(operation.name)
        self._query = ""
        self._token: str | None = api.operator if operation.operator else ""
        self._headers: dict[str, str] = {}

    async def prepare(self) -> None:
        """Create the records that the path identifies."""
        if "{token_id}" in self._path:
            access = await self._api.store.directory.access(await self._api.new_token())
            assert access is not None
            self._parameters["token_id"] = str(access.token.id)
        elif "_id}" in self._path:
            scope = self._path.format_map(self._parameters | dict.fromkeys(PATH_IDS, ""))
            scope = scope.partition("/webhooks/")[0] + "/webhooks"
            made = await self._api.create(scope)
            sent = await self._api.send("POST", f"{scope}/endpoints/{made['id']}/test")
            self._parameters |= {"endpoint_id": made["id"], **sent.data["attributes"]}

    async def change(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.UNAUTHORIZED:
                self._token = None
            case ErrorCode.PERMISSION_DENIED:
                others = [one for one in Permission if one is not self._operation.permission]
                self._token = await self._api.new_token(permissions=others)
            case ErrorCode.ACCESS_DISABLED:
                self._token = await self._api.new_token(CLOSED)
                self._parameters |= {"organization_slug": CLOSED, "project_ref": CLOSED_REF}
            case ErrorCode.INVALID_SLUG:
                self._parameters["organization_slug"] = "a.b"
            case ErrorCode.INVALID_REF:
                self._parameters["project_ref"] = "short"
            case ErrorCode.NO_ENDPOINT | ErrorCode.NO_DELIVERY | ErrorCode.NO_EVENT | ErrorCode.NO_TOKEN:
                self._parameters |= dict.fromkeys((*PATH_IDS, "token_id"), NO_SUCH)
            case ErrorCode.NO_ORGANIZATION:
                self._token = self._api.operator
                self._parameters["organization_slug"] = "nobody"
            case ErrorCode.NO_PROJECT:
                self._token = self._api.operator
                self._parameters["project_ref"] = "nosuchnosuchnosuchno"
                if self._operation.name == "createPortalLink":
                    self._body = document("portal_link", project_ref="nosuchnosuchnosuchno")
            case ErrorCode.ORGANIZATION_EXISTS:
                self._attributes(slug=ACME.organization)
            case ErrorCode.PROJECT_EXISTS:
                self._attributes(ref=REF)
            case ErrorCode.KEY_USED | ErrorCode.KEY_UNANSWERED:
                await self._repeat(code)
            case ErrorCode.VALIDATION:
                self._query = "?no=such"
            case ErrorCode.WRONG_METHOD:
                self._method = "PUT"
            case ErrorCode.WRONG_MEDIA_TYPE:
                self._headers["content-type"] = "text/plain"
                self._body = b"{}"
            case ErrorCode.TOO_LARGE:
                self._body = b" " * (MAX_READ + 1)
            case ErrorCode.UNAVAILABLE:
                self._api.reason = "The database is away"
            case ErrorCode.URL_INVALID | ErrorCode.URL_RESERVED | ErrorCode.URL_UNRESOLVABLE:
                self._attributes(url=URLS[code])
            case _:
                await self._change_endpoints(code)

    async def _repeat(self, code: ErrorCode) -> None:
        """Store an identical or a different request with the same idempotency key."""
        self._headers["idempotency-key"] = str(uuid4())
        token = self._token or self._api.token
        access = await self._api.store.directory.access(token)
        assert access is not None
        headers = {**self._headers, "authorization": f"Bearer {token}"}
        request = Request("", self._method, self._path.format_map(self._parameters), "", headers, b"")
        same = keyed_request(request, access.token, self._body or {})
        assert same is not None
        other = replace(same, digest=b"another") if code is ErrorCode.KEY_USED else same
        assert await self._api.store.stored_responses.begin(other) is None

    async def _change_endpoints(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.TEST_WRONG_TYPE:
                self._execute("update webhooks.endpoint set event_types = array['v1.project.restored']")
                self._body = document("event", type="v1.project.paused")
            case ErrorCode.TEST_DISABLED | ErrorCode.RETRY_DISABLED:
                self._execute("update webhooks.endpoint set enabled = false")
            case ErrorCode.TOO_MANY_REQUESTS:
                self._execute(
                    "insert into webhooks.request (endpoint_id)"
                    " select id from webhooks.endpoint, generate_series(1, 10)"
                )
            case ErrorCode.TOO_MANY_ENDPOINTS:
                assert (await self.send()).status == 201
                self._execute(
                    "insert into webhooks.endpoint (id, organization_slug, project_ref, url, event_types,"
                    " signing_secret, custom_headers) select gen_random_uuid(), organization_slug,"
                    " project_ref, url, event_types, signing_secret, custom_headers"
                    f" from webhooks.endpoint, generate_series(2, {MAX_ENDPOINTS})"
                )
            case _:
                pytest.fail(f"the test contains no request that fails with {code}")

    def _attributes(self, **changes: Any) -> None:
        data = self._body["data"]
        self._body = {**self._body, "data": {**data, "attributes": {**data["attributes"], **changes}}}

    def _execute(self, statement: str) -> None:
        self._api.database.execute(statement)

    async def send(self) -> Answer:
        """Send the request. Publishing requires the scope in the body."""
        if self._operation.name == "publishEvent" and isinstance(self._body, dict):
            self._attributes(**self._parameters)
            self._body["meta"] = {"idempotency_key": str(uuid4())}
        target = self._path.format_map(self._parameters) + self._query
        return await self._api.send(
            self._method, target, self._body, token=self._token, headers=self._headers
        )


@pytest.mark.parametrize(
    ("operation", "path", "code"),
    CASES,
    ids=[f"{code.code} {operation.method} {path}" for operation, path, code in CASES],
)
async def test_operation_returns_each_of_its_described_codes(
    api: Management, operation: ManagementOperation, path: str, code: ErrorCode
) -> None:
    request = OperationRequest(api, operation, path)
    await request.prepare()
    await request.change(code)
    assert (await request.send()).refusal == (code.status, code.code)


async def test_unknown_path_is_rejected(api: Management) -> None:
    assert (await api.send("GET", "/v2/nothing")).refusal == (404, "not_found")


def test_every_code_is_covered() -> None:
    covered = {code for _, _, code in CASES}
    assert covered | SERVER_CODES | {ErrorCode.NOT_FOUND} == set(ErrorCode)
    assert set(COMMON_ERRORS) >= SERVER_CODES
