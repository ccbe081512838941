"""Endpoints and events of a ``Campaign``."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from support.webhooks import SECRET


@dataclass
class Target:
    """An endpoint of a ``Campaign``.

    :ivar paths: paths of all URLs that the endpoint has had, the current one last.
    :ivar secrets: all secrets that the endpoint has had.
    :ivar steady: whether the endpoint is never disabled or deleted, so that it receives every event.
    """

    identifier: str
    host: str
    paths: list[str]
    secrets: list[str] = field(default_factory=lambda: [SECRET])
    steady: bool = True
    deleted: bool = False


@dataclass
class Published:
    """An event that a ``Campaign`` publishes.

    :ivar known: whether the event is certain to have been published.
    :ivar targets: IDs of the endpoints that must receive the event (``Target.steady``).
    """

    number: int
    targets: list[str]
    key: str = field(default_factory=lambda: str(uuid4()))
    known: bool = False
