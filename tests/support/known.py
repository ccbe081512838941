"""What a campaign knows of the endpoints that it made and the events that it raised."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from support.webhooks import SECRET


@dataclass
class Target:
    """An endpoint as the campaign knows it.

    :ivar paths: those of the URLs that it ever had, the present one last.
    :ivar secrets: those that it ever had.
    :ivar steady: whether it is never disabled nor deleted, so that it misses nothing.
    """

    identifier: str
    host: str
    paths: list[str]
    secrets: list[str] = field(default_factory=lambda: [SECRET])
    steady: bool = True
    deleted: bool = False


@dataclass
class Published:
    """An event as the campaign knows it.

    :ivar known: whether it is certain that it was raised.
    :ivar targets: identifiers of the steady endpoints that were there before.
    """

    number: int
    targets: list[str]
    key: str = field(default_factory=lambda: str(uuid4()))
    known: bool = False
