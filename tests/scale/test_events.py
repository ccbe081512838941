"""Events of transactions that change distributed rows are delivered if and only if they commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.pool import Pool
from dataapi.settings import TransactionEnd
from support.deliveries import Deliveries, event_of
from support.receiver import Receiver, World, pause
from support.service import run, serving
from support.webhooks import add_endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database
    from support.service import Service

CREATED = "v1.task.created"
# The function is called once, and writes both to a shard and on the coordinator.
FUNCTION = f"""
grant usage on schema webhooks to anon;
grant execute on function webhooks.publish to anon;
create function create_task(company int, number int) returns void language plpgsql as $$
begin
    insert into task (company_id, id, project_id, title) values (company, number, 1, 'New');
    perform webhooks.publish('{CREATED}', 'acme', null, jsonb_build_object('id', number), 'task ' || number);
end $$;
"""


@pytest.fixture
def service(distributed: Database, reactor: Any) -> Iterator[Service]:
    """Serve the cluster and let clients roll transactions back."""
    with serving(reactor, distributed, db_tx_end=TransactionEnd.COMMIT_ALLOW_OVERRIDE) as made:
        yield made


@pytest.fixture
def deliveries(distributed: Database, reactor: Any) -> Iterator[Deliveries]:
    """Yield a factory of dispatchers on the coordinator."""
    pool = Pool(reactor, distributed.uri, size=3)
    run(pool.start())
    made = Deliveries(reactor, distributed, pool)
    yield made
    made.end()
    run(pool.stop())


async def test_event_of_a_shard_transaction_is_delivered(
    service: Service, deliveries: Deliveries, world: World, distributed: Database
) -> None:
    receiver = Receiver()
    url = f"http://127.0.0.1:{world.listen(receiver)}/"
    store = await deliveries.store()
    await store.publisher.sync_event_types({}, [CREATED])
    await add_endpoint(store, url=url, event_types=(CREATED,))
    await service.execute(FUNCTION)
    await deliveries.dispatcher(store)
    for number, end in ((500, "rollback"), (501, "commit")):
        task, headers = {"company": 3, "number": number}, {"Prefer": f"tx={end}"}
        response = await service.rest("POST", "rpc/create_task", task, headers=headers)
        assert response.status == 204, response.text
    while await store.queue.next_due() is not None:
        await pause()
    assert [event_of(request)["payload"]["id"] for request in receiver.received] == [501]
    assert distributed.execute("delete from task where id >= 500 returning id") == [(501,)]
