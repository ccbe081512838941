"""What is kept of webhooks in PostgreSQL: endpoints, events, due work, history, and who may do what."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store.directory import Directory
from dataapi.webhooks.store.endpoints import Endpoints
from dataapi.webhooks.store.history import History
from dataapi.webhooks.store.publishing import Publisher
from dataapi.webhooks.store.queue import Queue
from dataapi.webhooks.store.requests import Requests
from dataapi.webhooks.store.resealing import Resealing
from dataapi.webhooks.store.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class Store:
    """The whole store; every part works over the same database."""

    directory: Directory
    endpoints: Endpoints
    history: History
    publisher: Publisher
    queue: Queue
    requests: Requests
    resealing: Resealing
    upkeep: Upkeep


def make_store(database: Fetches, cipher: Cipher, retention_days: int) -> Store:
    """Make the store of a database whose schema ``webhooks`` is migrated; reads nothing yet."""
    upkeep = Upkeep(database, retention_days)
    return Store(
        directory=Directory(database),
        endpoints=Endpoints(database, cipher),
        history=History(database, retention_days),
        publisher=Publisher(database),
        queue=Queue(database, cipher, upkeep),
        requests=Requests(database, retention_days),
        resealing=Resealing(database, cipher),
        upkeep=upkeep,
    )
