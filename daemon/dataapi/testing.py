"""Helpers for tests of applications, plugins and receivers (docs/python.md).

>>> with served("postgresql://authenticator@127.0.0.1/app") as api:
...     request(f"{api.url}/rest/v1/note", headers=api.headers("authenticated", sub="ada"))

>>> catalogue = check_catalogues(ShopEvents())
>>> delivery = sample_delivery(catalogue, "v1.shop.order", SECRET)
>>> publisher = RecordingPublisher(catalogue)
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from dataapi.auth.keys import new_publishable_key, new_secret, new_secret_key, sign
from dataapi.service.configuration import ConfigurationError, load
from dataapi.settings import Project, Settings
from dataapi.webhooks import identifiers
from dataapi.webhooks.catalogue import BadEventType, BadPayload, Catalogue, sample_payload
from dataapi.webhooks.delivery.headers import delivery_headers, verify
from dataapi.webhooks.interfaces import IEventCatalogue
from dataapi.webhooks.model import NewEvent
from dataapi.webhooks.plugins import SHIPPED, SourcePublisher

ORGANIZATION = "acme"
PROJECT = "abcdefghijklmnopqrst"
"""The organization and project of sample deliveries."""

_PORTS = range(20_000, 32_768)
"""Ports below the range that the system uses for outgoing connections."""
_NUMBERS = itertools.count(os.getpid() * 997)
"""Sequence of candidate ports. Concurrent test runs start at different ones."""
_COMMAND = (sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "-n", "--pidfile=")


class DaemonFailed(Exception):
    """Raised when the daemon exits or does not become ready. The message contains its log."""


@dataclass(frozen=True, slots=True)
class ServedDatabase:
    """A running daemon.

    :ivar url: base URL of the APIs, such as ``http://127.0.0.1:20000``.
    :ivar admin_url: base URL of the admin listener.
    :ivar publishable_key: API key for the role of ``db-anon-role``.
    :ivar secret_key: API key for the role ``service_role``.
    """

    url: str
    admin_url: str
    publishable_key: str
    secret_key: str
    _project: Project = field(repr=False)
    _output: Path = field(repr=False)

    def token(self, role: str = "authenticated", *, lifetime: int = 3600, **claims: Any) -> str:
        """Return a signed token.

        :param lifetime: validity in seconds. A token with a negative lifetime has expired.
        :param claims: additional claims, such as ``sub``.
        """
        return sign(self._project, role, int(time.time()), lifetime, **claims)

    def headers(self, role: str | None = None, **claims: Any) -> dict[str, str]:
        """Return the headers of a request: an API key, and a token if a role is given."""
        headers = {"apikey": self.publishable_key}
        if role is not None:
            headers["Authorization"] = f"Bearer {self.token(role, **claims)}"
        return headers

    @property
    def log(self) -> str:
        """Everything that the daemon has logged so far."""
        return self._output.read_text("utf-8", "replace")


@contextmanager
def served(
    uri: str, sections: Mapping[str, Mapping[str, str]] | None = None, *, within: float = 60.0
) -> Iterator[ServedDatabase]:
    """Run a daemon for a database in a separate process, with new keys and free ports.

    :param uri: connection string of the login role, ``db-uri``.
    :param sections: configuration keys by section, such as ``{"project": {"db-schemas": "api"}}``.
    :param within: seconds for the daemon to become ready.
    :raises ConfigurationError: a key is invalid.
    :raises DaemonFailed: the daemon exits, or does not become ready in time.
    """
    port, admin_port = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="dataapi-testing-") as folder:
        file, output = Path(folder, "dataapi.ini"), Path(folder, "log")
        file.touch(mode=0o600)
        file.write_text(configuration(uri, port, admin_port, sections or {}), "utf-8")
        [project] = load(file, {}).projects
        api = ServedDatabase(
            f"http://127.0.0.1:{port}",
            f"http://127.0.0.1:{admin_port}",
            next(iter(project.publishable_keys), ""),
            next(iter(project.secret_keys), ""),
            project,
            output,
        )
        with output.open("wb") as log:
            process = subprocess.Popen(
                [*_COMMAND, "dataapi", "--config", str(file)],
                cwd=folder,
                env=daemon_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + within
            while not _is_ready(admin_port):
                if process.poll() is not None or time.monotonic() > deadline:
                    problem = "is not ready" if process.poll() is None else "ended"
                    raise DaemonFailed(f"the daemon {problem}: {api.log}")
                time.sleep(0.02)
            yield api
        finally:
            process.terminate()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def configuration(uri: str, port: int, admin_port: int, sections: Mapping[str, Mapping[str, str]]) -> str:
    """Return a configuration that listens on 127.0.0.1. It has new keys unless ``sections`` contains keys."""
    defaults = {
        "dataapi": {
            "listen": f"tcp:{port}:interface=127.0.0.1",
            "admin-listen": f"tcp:{admin_port}:interface=127.0.0.1",
        },
        "project": {
            "db-uri": uri,
            "jwt-secret": new_secret(secrets.token_urlsafe),
            "publishable-keys": new_publishable_key(secrets.token_urlsafe),
            "secret-keys": new_secret_key(secrets.token_urlsafe),
        },
    }
    lines = []
    for section in {**defaults, **sections}:
        lines.append(f"[{section}]")
        keys = {**defaults.get(section, {}), **sections.get(section, {})}
        lines += [f"{key} = {value}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def daemon_environment() -> dict[str, str]:
    """Return the environment of this process without variables that configure daemons."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DATAAPI_") and name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS")
    }


def free_port() -> int:
    """Return an unused port on 127.0.0.1; each call returns a different port.

    :raises OSError: if there is none.
    """
    for _ in _PORTS:
        port = _PORTS[next(_NUMBERS) % len(_PORTS)]
        if _is_free(port):
            return port
    raise OSError(f"every port from {_PORTS.start} to {_PORTS.stop - 1} is taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_ready(admin_port: int) -> bool:
    try:
        with closing(HTTPConnection("127.0.0.1", admin_port, timeout=10.0)) as connection:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False


def check_catalogues(*catalogues: IEventCatalogue) -> Catalogue:
    """Validate event catalogues, and return their event types together with the bundled ones.

    Like the daemon, this function checks that schemas are valid, that they accept the examples, and that
    the catalogues contain each older version that a type renders. It also converts each example to the older
    versions, and validates the results.

    :raises zope.interface.Invalid: a catalogue does not provide ``IEventCatalogue``.
    :raises BadEventType: a type is invalid. The daemon would ignore the whole catalogue.
    """
    shipped: IEventCatalogue = import_module(SHIPPED).platform_events
    for catalogue in catalogues:
        verifyObject(IEventCatalogue, catalogue)
    types = [event_type for catalogue in (shipped, *catalogues) for event_type in catalogue.event_types()]
    checked = Catalogue(types)
    for newer, versions in checked.versions().items():
        for older in versions:
            try:
                checked.check(older, checked.render(newer, older, checked.types[newer].example))
            except Exception as error:
                raise BadEventType(f"{newer} does not render {older}: {error!r}") from error
    return checked


@dataclass(frozen=True, slots=True)
class SampleDelivery:
    """A request as received by an endpoint.

    :ivar headers: headers of the delivery, with names in lower case.
    """

    headers: Mapping[str, str]
    body: bytes


def sample_delivery(
    catalogue: Catalogue, event_type: str, secret: str, *, signed_at: datetime | None = None
) -> SampleDelivery:
    """Return a signed delivery of a type's example, marked as a test.

    :param secret: signing secret of the endpoint.
    :param signed_at: time of the signature, with a time zone (default: now).
    :raises KeyError: the catalogue does not contain the type.
    """
    described = catalogue.types[event_type]
    moment = signed_at or datetime.now(UTC)
    event_id = str(identifiers.uuid_v7())
    event = {
        "id": event_id,
        "type": event_type,
        "timestamp": moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "payload": sample_payload(described, ORGANIZATION, PROJECT),
    }
    body = json.dumps(event, separators=(",", ":")).encode()
    return SampleDelivery(dict(delivery_headers(secret, event_id, int(moment.timestamp()), body)), body)


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a delivery is signed with a secret. The age of ``webhook-timestamp`` is not checked.

    :param headers: headers with names in lower case.
    :param body: the body as received.
    :raises KeyError: a header of the signature is missing.
    """
    timestamp = int(headers["webhook-timestamp"])
    return verify(secret, headers["webhook-id"], timestamp, body, headers["webhook-signature"])


class _Memory:
    """Stores published events, once for each organization and idempotency key."""

    def __init__(self, events: list[NewEvent]) -> None:
        self._events = events
        self._ids: dict[tuple[str, str], UUID] = {}

    async def publish(self, event: NewEvent) -> UUID:
        key = event.scope.organization, event.idempotency_key
        if key not in self._ids:
            self._ids[key] = identifiers.uuid_v7()
            self._events.append(event)
        return self._ids[key]


class RecordingPublisher(SourcePublisher):
    """An ``IEventPublisher`` for tests of event sources. It validates events like the daemon, and records
    them.

    Organizations and projects are not checked, because there is no database.

    :param settings: the configuration, for sources that depend on it.
    :ivar events: the published events, without repetitions of an idempotency key.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings | None = None, reactor: Any = None) -> None:
        self.events: list[NewEvent] = []
        sink = _Memory(self.events)
        super().__init__(sink, lambda: catalogue, settings or Settings(projects=()), reactor or Clock())


__all__ = [
    "ORGANIZATION",
    "PROJECT",
    "BadEventType",
    "BadPayload",
    "ConfigurationError",
    "DaemonFailed",
    "RecordingPublisher",
    "SampleDelivery",
    "ServedDatabase",
    "check_catalogues",
    "free_port",
    "is_signed",
    "sample_delivery",
    "served",
]
