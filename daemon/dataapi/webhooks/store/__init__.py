"""Database access for webhooks: endpoints, events, the queue, delivery history, organizations and tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store.directory import Directory
from dataapi.webhooks.store.endpoints import Endpoints, KeyRotation
from dataapi.webhooks.store.enqueue import ManualDeliveries, Publisher
from dataapi.webhooks.store.history import History, Maintenance
from dataapi.webhooks.store.queue import Queue
from dataapi.webhooks.store.row_change_types import RowChangeTypes
from dataapi.webhooks.store.statements import SqlRunner
from dataapi.webhooks.store.stored_responses import StoredResponses


@dataclass(frozen=True, slots=True)
class Store:
    """Objects that access the tables of the schema ``webhooks``."""

    stored_responses: StoredResponses
    directory: Directory
    endpoints: Endpoints
    history: History
    publisher: Publisher
    queue: Queue
    manual_deliveries: ManualDeliveries
    key_rotation: KeyRotation
    row_change_types: RowChangeTypes
    maintenance: Maintenance


def make_store(
    database: SqlRunner,
    cipher: Cipher,
    retention_days: int,
    on_enqueued: Callable[[], None] = lambda: None,
    disable_after: int = 0,
    *,
    for_queue: SqlRunner | None = None,
    for_maintenance: SqlRunner | None = None,
) -> Store:
    """Return the store of a database. Creating it does not access the database.

    :param for_queue: runs the queue's SQL, with a shorter time limit.
    :param for_maintenance: runs maintenance SQL, with a longer time limit.
    :param on_enqueued: called after this store has added to the queue.
    :param disable_after: days of failed attempts after which an endpoint is disabled (default: 0, never).
    """
    maintenance = Maintenance(for_maintenance or database, retention_days)
    return Store(
        stored_responses=StoredResponses(database),
        directory=Directory(database),
        endpoints=Endpoints(database, cipher),
        history=History(database, retention_days),
        publisher=Publisher(database, on_enqueued),
        queue=Queue(for_queue or database, cipher, maintenance, disable_after),
        manual_deliveries=ManualDeliveries(database, retention_days, on_enqueued),
        key_rotation=KeyRotation(database, cipher),
        row_change_types=RowChangeTypes(database),
        maintenance=maintenance,
    )
