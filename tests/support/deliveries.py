"""Dispatchers that send deliveries from a real queue to local receivers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from dataapi.database.listener import Listener
from dataapi.settings import Webhooks
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.delivery.attempt import AttemptSender
from dataapi.webhooks.delivery.destinations import networks
from dataapi.webhooks.delivery.dispatcher import CHANNELS, Dispatcher
from dataapi.webhooks.delivery.resolver import AddressCheck
from dataapi.webhooks.model import Cursor, Delivery, DeliveryFilter
from support.receiver import Names
from support.service import run
from support.webhooks import ACME, migrated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dataapi.database.pool import Pool
    from dataapi.webhooks.store import Store
    from support.postgres import Database
    from support.receiver import Received

QUICK = Webhooks(retry_waits=(0.1, 0.2, 0.3, 0.4), timeout=60.0)
"""A shortened retry schedule."""


class Deliveries:
    """A migrated database with its dispatchers; ``end`` stops them."""

    def __init__(self, reactor: Any, database: Database, pool: Pool) -> None:
        self._reactor = reactor
        self._database = database
        self._pool = pool
        self._ends: list[Callable[[], Any]] = []

    async def store(self) -> Store:
        return await migrated(self._database, self._pool)

    async def dispatcher(
        self,
        store: Store,
        rules: Webhooks = QUICK,
        render: Any = None,
        *,
        queue: Any = None,
        listen: bool = True,
    ) -> Dispatcher:
        """Start a dispatcher that is notified of new work and may send to this machine."""
        address_check = AddressCheck(Names(["127.0.0.1"]), networks(["127.0.0.0/8"]))
        sender = AttemptSender(self._reactor, address_check, time.time, timeout=rules.timeout)
        dispatcher = Dispatcher(
            self._reactor,
            queue or store.queue,
            sender,
            render or Catalogue().render,
            rules,
            random=lambda: 0.5,
        )
        self._ends += [sender.close, lambda: run(dispatcher.drain(0.2))]
        if listen:
            listener = Listener(
                self._reactor,
                self._database.uri,
                CHANNELS,
                on_notification=lambda channel, _payload: dispatcher.notified(channel),
                on_reconnect=dispatcher.reclaim,
            )
            self._ends.append(lambda: run(listener.stop()))
            await listener.start()
        dispatcher.start()
        return dispatcher

    def end(self) -> None:
        for end in reversed(self._ends):
            end()


async def records(store: Store, size: int = 100, **filters: Any) -> list[Delivery]:
    """Return the deliveries of the organization's endpoints, oldest first."""
    page = await store.history.page(ACME, None, DeliveryFilter(**filters), Cursor(size=size))
    return list(reversed(page.deliveries))


def event_of(request: Received) -> Mapping[str, Any]:
    """Return the event envelope of a request."""
    envelope: Mapping[str, Any] = json.loads(request.body)
    return envelope
