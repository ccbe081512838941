"""The management API on a loopback port, with its own database and a client."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from dataapi.database.pool import Pool
from dataapi.web.app import make_site
from dataapi.webhooks.delivery.destinations import networks
from dataapi.webhooks.delivery.resolver import AddressCheck
from dataapi.webhooks.management.api import BY_PATH, ManagementApi
from dataapi.webhooks.management.errors import COMMON_ERRORS
from dataapi.webhooks.management.url_check import EndpointUrlCheck
from dataapi.webhooks.model import Permission
from dataapi.webhooks.plugins import installed_catalogue
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import Store, make_store
from dataapi.webhooks.store.directory import new_token
from support.service import run
from support.webhooks import ACME, KEY, REF, SECRET, migrated
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.web.client import Agent, HTTPConnectionPool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dataapi.webhooks.delivery.destinations import Address
    from support.postgres import Database

OTHER = "globex"
OTHER_REF = "tsrqponmlkjihgfedcba"
CLOSED = "initech"
"""An organization without early access, with a project."""
CLOSED_REF = "closedclosedclosedcl"
ORGANIZATION = f"/v2/organizations/{ACME.organization}/webhooks"
PROJECT = f"/v2/projects/{REF}/webhooks"
SCOPES = (ORGANIZATION, PROJECT)
NO_SUCH = "5b0ad6c8-3f1e-4c52-9d7a-0e6f8a2b4c19"
"""A valid identifier that does not exist."""
ALL = tuple(Permission)

ADDRESSES = {
    "receiver.example": ("93.184.216.34", "2606:2800:220:1::1"),
    "inside.example": ("10.0.0.7",),
    "mixed.example": ("93.184.216.34", "169.254.169.254"),
    "nowhere.example": (),
}


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)

    @property
    def data(self) -> Any:
        """The ``data`` member of a successful response."""
        assert self.status < 300, self.content
        return self.body["data"]

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code of an error response, after checking the response's format."""
        error = self.body["error"]
        assert set(self.body) == {"error"}
        assert {"code", "message", "id"} <= set(error) <= {"code", "message", "id", "issues"}
        assert error["id"] == self.headers["x-request-id"]
        return self.status, error["code"]

    @property
    def pointers(self) -> list[str]:
        """The locations of the issues: JSON pointers, or names of parameters."""
        metas = [issue["meta"] for issue in self.body["error"]["issues"]]
        return [meta.get("pointer", meta.get("parameter")) for meta in metas]


class Names:
    """A resolver for a few names; ``slow.example`` never resolves."""

    async def addresses(self, name: str) -> Sequence[Address]:
        if name == "slow.example":
            await Deferred()
        if name not in ADDRESSES:
            raise OSError(name)
        return [ip_address(text) for text in ADDRESSES[name]]


class Management:
    """The served API; use it through ``managing``.

    :ivar store: the store that the API uses.
    :ivar token: a token of acme with all permissions.
    :ivar operator: an operator token.
    :ivar reason: set to make the API report that webhooks do not work.
    """

    def __init__(self, reactor: Any, database: Database) -> None:
        self._reactor = reactor
        self.database = database
        self.pool = Pool(reactor, database.uri, size=1)
        self._client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self.catalogue = installed_catalogue()
        self.address_check = AddressCheck(Names(), networks(["127.0.0.0/8"]))
        self.reason: str | None = None
        self.store: Store
        self.token = ""
        self.operator = new_token()

    async def start(self, *, require_https: bool = False, keys: Sequence[str] = (KEY,)) -> None:
        """Migrate, create organizations and tokens, and listen.

        :param keys: keys that encrypt secrets.
        """
        await self.pool.start()
        await migrated(self.database, self.pool)
        self.store = make_store(self.pool, Cipher(keys), 14)
        directory = self.store.directory
        await directory.create_organization(OTHER, early_access=True)
        await directory.create_project(OTHER_REF, OTHER)
        await directory.create_organization(CLOSED)
        await directory.create_project(CLOSED_REF, CLOSED)
        self.token = await self.new_token()
        await directory.create_operator_token(self.operator, None)
        receivers = EndpointUrlCheck(self._reactor, self.address_check, require_https=require_https)
        api = ManagementApi(self.store, self.catalogue, receivers, lambda: self.reason)
        self._site = make_site([], self._reactor, webhooks=api)
        self._port = self._reactor.listenTCP(0, self._site, interface="127.0.0.1")

    async def stop(self) -> None:
        await self._port.stopListening()
        await self._site.drain(5.0)
        await self.pool.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.getHost().port}"

    async def new_token(
        self, organization: str = ACME.organization, permissions: Sequence[Permission] = ALL, **named: Any
    ) -> str:
        secret = new_token()
        await self.store.directory.create_token(secret, organization, permissions, named.get("expires_at"))
        return secret

    async def send(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and return the response.

        :param body: bytes are sent unchanged, other values as JSON.
        :param token: token to use (default: acme's; None for no token).
        """
        sent: Any = dict(headers or {})
        if token is not None:
            sent.setdefault("authorization", f"Bearer {token or self.token}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        response = await self._client.request(method, f"{self.url}{target}", data=body, headers=sent)
        content = await response.content()
        received = {
            name.decode().lower(): values[0].decode() for name, values in response.headers.getAllRawHeaders()
        }
        answer = Answer(response.code, received, content)
        if answer.status >= 400 and method != "HEAD":
            assert answer.refusal in described(method, target), (
                "the OpenAPI description does not list this error code"
            )
        return answer

    async def create(self, scope: str = ORGANIZATION, **attributes: Any) -> Any:
        return (await self.send("POST", f"{scope}/endpoints", endpoint(**attributes))).data

    async def delivery(self, scope: str = ORGANIZATION, **attributes: Any) -> str:
        """Create an endpoint, send it a test event, and return the ID of the pending delivery."""
        made = await self.create(scope, **attributes)
        sent = await self.send("POST", f"{scope}/endpoints/{made['id']}/test")
        found: str = sent.data["attributes"]["delivery_id"]
        return found


def described(method: str, target: str) -> set[tuple[int, str]]:
    """Return the error statuses and codes of an operation according to the OpenAPI description."""
    path = target.partition("?")[0]
    for template, methods in BY_PATH.items():
        if method in methods and re.fullmatch(re.sub(r"{\w+}", "[^/]*", template), path):
            return {(one.status, one.code) for one in methods[method].codes(template)}
    return {(one.status, one.code) for one in COMMON_ERRORS}


def endpoint(**attributes: Any) -> dict[str, Any]:
    """Return a document that creates an endpoint, by default for every event type.

    Attributes that are None are omitted.
    """
    given = {
        "url": "https://receiver.example/hooks",
        "event_types": [{"type": "*"}],
        "signing_secret": SECRET,
        **attributes,
    }
    return {"data": {"type": "endpoint", "attributes": {k: v for k, v in given.items() if v is not None}}}


def document(kind: str, **attributes: Any) -> dict[str, Any]:
    return {"data": {"type": kind, "attributes": attributes}}


def event(key: str, **attributes: Any) -> dict[str, Any]:
    """Return a document that publishes an event, by default of acme's project."""
    given = {
        "type": "v1.project.paused",
        "organization_slug": ACME.organization,
        "project_ref": REF,
        "payload": {"reason": "inactivity"},
        **attributes,
    }
    return {**document("event", **given), "meta": {"idempotency_key": key}}


@contextmanager
def managing(reactor: Any, database: Database, **named: Any) -> Iterator[Management]:
    """Serve the management API of a database."""
    service = Management(reactor, database)
    run(service.start(**named))
    try:
        yield service
    finally:
        run(service.stop())
