"""Calls of the store that access growing tables, on the data of ``bench.store_data``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from bench.store_data import REF
from dataapi.webhooks.model import (
    AttemptOutcome,
    Claim,
    Cursor,
    DeliveryFilter,
    FinishedAttempt,
    NewEvent,
    Scope,
    Status,
)

if TYPE_CHECKING:
    from bench.plans import Call
    from dataapi.webhooks.store import Store
    from support.postgres import Database

LARGE, FAILING, PUBLISHING = Scope("large"), Scope("failing"), Scope("publishing")
OTHERS = tuple(Scope(f"other-{number}") for number in range(38))


@dataclass(frozen=True)
class Query:
    """A call of the store.

    :ivar before: SQL that runs first in its transaction.
    """

    name: str
    call: Callable[[], Call]
    before: str = ""


def queries(store: Store, database: Database) -> Iterator[Query]:
    yield from _of_the_queue(store, database)
    yield from _of_lists(store, database)
    yield from _of_owners(store, database)
    yield Query("maintenance: each part once", store.maintenance.run)
    yield Query("maintenance, with a deleted endpoint", store.maintenance.run, _DELETED)


_DELETED = """
insert into webhooks.removal select id from public.receiver where number = 0;
delete from webhooks.endpoint where id in (select endpoint_id from webhooks.removal)
"""


def _receiver(database: Database, number: int) -> UUID:
    [(identifier,)] = database.execute("select id from public.receiver where number = %s", (number,))
    return UUID(identifier)


_HELD = (
    "select delivery_id, fence from webhooks.due where claimable_at <= now() order by delivery_id limit 100"
)
_LEASED = f"""
update webhooks.due d set leased = true, fence = d.fence + 1
from ({_HELD}) h where d.delivery_id = h.delivery_id
"""
_DIED = """
insert into webhooks.dispatcher values (7, now() - interval '1 minute');
update webhooks.due set leased = true, holder = 7, claimable_at = now() + interval '30 seconds'
where delivery_id in (select delivery_id from webhooks.due limit 256)
"""


def _of_the_queue(store: Store, database: Database) -> Iterator[Query]:
    queue, now, headers = store.queue, datetime.now(UTC), (("content-type", "text/plain"),)
    claims = [Claim(UUID(identifier), fence + 1) for identifier, fence in database.execute(_HELD)]
    success = AttemptOutcome(True, now, 40, 200, headers, "ok")
    failure = AttemptOutcome(False, now, 40, 503, headers, "busy")
    full = [LARGE.organization, *(scope.organization for scope in OTHERS[:30])]
    ended = [FinishedAttempt(one, success) for one in claims]
    again = [FinishedAttempt(one, failure, 90.0) for one in claims]
    yield Query("claim 256", partial(queue.claim, 256, 30.0))
    yield Query("claim 256, most organizations full", partial(queue.claim, 256, 30.0, full=full))
    yield Query("next due", queue.next_due)
    yield Query("finish 100, delivered", partial(queue.finish, ended), _LEASED)
    yield Query("finish 100, to be made again", partial(queue.finish, again), _LEASED)
    yield Query("release 100", partial(queue.release, claims), _LEASED)
    yield Query("take over, nobody died", partial(queue.end_lost_leases, 1))
    yield Query("take over 256", partial(queue.end_lost_leases, 1), _DIED)
    yield Query("statistics of the queue", queue.statistics)


_MIDDLE = """
select id, event_id from webhooks.delivery
where endpoint_id = %s and status = 'success' and id > webhooks.uuid_floor(now() - interval '7 days')
order by id limit 1
"""


def _of_lists(store: Store, database: Database) -> Iterator[Query]:
    endpoint, failing = _receiver(database, 0), _receiver(database, 50)
    [(delivery, event)] = database.execute(_MIDDLE, (str(endpoint),))
    day = (datetime.now(UTC) - timedelta(days=7)).replace(hour=0, minute=0)
    end = day + timedelta(days=1)
    filters = {
        "all": DeliveryFilter(),
        "success": DeliveryFilter(Status.SUCCESS),
        "failed": DeliveryFilter(Status.FAILED),
        "skipped": DeliveryFilter(Status.SKIPPED),
        "pending": DeliveryFilter(Status.PENDING),
        "type": DeliveryFilter(event_type="v1.order.paid"),
        "rare type": DeliveryFilter(event_type="v1.order.lost"),
        "no such type": DeliveryFilter(event_type="v1.project.paused"),
        "success, type": DeliveryFilter(Status.SUCCESS, event_type="v1.order.paid"),
        "failed, type": DeliveryFilter(Status.FAILED, event_type="v1.order.paid"),
        "failed, rare type": DeliveryFilter(Status.FAILED, event_type="v1.order.lost"),
        "skipped, type": DeliveryFilter(Status.SKIPPED, event_type="v1.order.paid"),
        "pending, no such type": DeliveryFilter(Status.PENDING, event_type="v1.project.paused"),
        "event": DeliveryFilter(event_id=UUID(event)),
        "failed, event": DeliveryFilter(Status.FAILED, event_id=UUID(event)),
        "a day": DeliveryFilter(since=day, until=end),
        "failed, a day": DeliveryFilter(Status.FAILED, since=day, until=end),
    }
    page = store.history.page
    for of, scope, one in (("50", LARGE, None), ("one", LARGE, endpoint), ("failing", FAILING, failing)):
        for name, chosen in filters.items():
            yield Query(f"list, {of}: {name}", partial(page, scope, one, chosen, Cursor()))
    project = Scope(LARGE.organization, REF)
    for name, chosen in filters.items():
        yield Query(f"list, a project's at 50: {name}", partial(page, project, None, chosen, Cursor()))
    cursors = {
        "page of 100": Cursor(100),
        "later page": Cursor(after=UUID(delivery)),
        "earlier page": Cursor(before=UUID(delivery)),
    }
    for name, cursor in cursors.items():
        yield Query(f"list, 50: {name}", partial(page, LARGE, None, DeliveryFilter(), cursor))
    yield Query("one delivery", partial(store.history.read, LARGE, UUID(delivery)))
    yield Query("statistics of a day", partial(store.history.statistics, LARGE, day, end))
    yield Query("statistics of 14 days", partial(store.history.statistics, LARGE, None, None))


_LATEST = "select id from webhooks.delivery where endpoint_id = %s order by id desc limit 1"


def _of_owners(store: Store, database: Database) -> Iterator[Query]:
    endpoint, failing = _receiver(database, 0), _receiver(database, 50)
    [(delivery,)] = database.execute(_LATEST, (str(endpoint),))
    now, payload, manual = datetime.now(UTC), {"customer": "c-17", "total": "129.90"}, store.manual_deliveries
    event = NewEvent("v1.order.paid", PUBLISHING, payload, str(uuid4()))
    week = now - timedelta(days=7)
    yield Query("publish for 3 endpoints", partial(store.publisher.publish, event))
    yield Query("publish for 50 endpoints", partial(store.publisher.publish, replace(event, scope=LARGE)))
    yield Query("test", partial(manual.test, LARGE, endpoint, event.type, payload))
    yield Query("retry", partial(manual.retry, LARGE, UUID(delivery)))
    yield Query("recover an hour", partial(manual.recover, FAILING, failing, now - timedelta(hours=1)))
    yield Query("recover 7 days, all failed", partial(manual.recover, FAILING, failing, week))
    yield Query("recover 7 days, few failed", partial(manual.recover, LARGE, endpoint, week))
    yield Query("endpoints of a scope", partial(store.endpoints.page, LARGE, 50, 0))
    yield Query("delete an endpoint", partial(store.endpoints.delete, LARGE, endpoint))
