"""The README's receivers accept genuine deliveries and reject forged ones."""

from __future__ import annotations

import itertools
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.webhooks.delivery.headers import delivery_headers
from dataapi.webhooks.model import Status
from support.deliveries import Deliveries, records
from support.node import install
from support.readme_receivers import EXAMPLES, NODE, NODE_PLAIN, PYTHON, PYTHON_PLAIN, Running
from support.service import run
from support.webhooks import SECRET, add_endpoint, publish
from twisted.internet import task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.time_limit(180)  # the first run installs a package

TEXT_SECRET = "a secret of one's own words"
BODY = b'{"id":"0190","type":"v1.project.paused","timestamp":"2026-03-01T12:00:00.000Z","payload":{}}'


def signed(secret: str, ago: float = 0) -> dict[str, str]:
    """Return the headers of a webhook request with the body ``BODY``."""
    return dict(delivery_headers(secret, "0190", int(time.time() - ago), BODY))


@pytest.fixture(
    params=itertools.product([PYTHON, NODE, PYTHON_PLAIN, NODE_PLAIN], [SECRET, TEXT_SECRET]),
    ids="-".join,
)
def receiver(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path: Path, reactor: Any
) -> Iterator[Running]:
    """Start each of the README's receivers with each kind of secret."""
    example, secret = request.param
    folder = tmp_path
    if example == NODE:
        assert pytestconfig.cache is not None
        folder = pytestconfig.cache.mkdir("npm-standardwebhooks")
        run(install(reactor, folder, "standardwebhooks@1"))
    elif example == NODE_PLAIN and shutil.which("node") is None:
        pytest.skip("node is not installed")
    running = Running(example, folder, secret)
    yield running
    running.end()


def test_every_example_is_tested() -> None:
    assert set(EXAMPLES) == {PYTHON, PYTHON_PLAIN, NODE, NODE_PLAIN}


async def test_genuine_delivery_is_accepted(deliveries: Deliveries, receiver: Running, reactor: Any) -> None:
    store = await deliveries.store()
    url = f"http://127.0.0.1:{receiver.port}/"
    await add_endpoint(store, url=url, signing_secret=receiver.secret)
    await deliveries.dispatcher(store)
    await publish(store, reason="größer")
    while (delivered := await records(store))[0].status is Status.PENDING:
        await task.deferLater(reactor, 0.02)
    [record] = delivered
    assert (record.status, record.response_code) == (Status.SUCCESS, 204), receiver.text
    assert receiver.handled == [str(record.event_id)]


def test_forged_delivery_is_rejected(receiver: Running) -> None:
    genuine = signed(receiver.secret)
    assert receiver.answer(genuine, BODY) == 204
    unsigned = {name: value for name, value in genuine.items() if not name.startswith("webhook-")}
    for headers, body in (
        (genuine, BODY.replace(b"paused", b"pauseD")),
        (genuine, BODY + b" "),
        ({**genuine, "webhook-id": "0191"}, BODY),
        ({**genuine, "webhook-timestamp": str(int(time.time()) + 1)}, BODY),
        (signed(receiver.secret, ago=400), BODY),
        (signed(receiver.secret, ago=-400), BODY),
        (signed("whsec_b3RoZXIgc2VjcmV0IG9mIHNvbWVib2R5"), BODY),
        ({**genuine, "webhook-signature": "v1,"}, BODY),
        ({**genuine, "webhook-signature": "none"}, BODY),
        ({**genuine, "webhook-timestamp": "now"}, BODY),
        (unsigned, BODY),
    ):
        assert receiver.answer(headers, body) == 400, (headers, body, receiver.text)
    assert receiver.answer(signed(receiver.secret), BODY) == 204
    assert receiver.handled == ["0190", "0190"]
