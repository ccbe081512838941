"""Deliveries of real daemons that are killed, cut off, held up or led astray (issue: webhooks, faults).

Nothing published is lost, what comes twice has the same ``webhook-id``, and nothing is left in the queue.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import psycopg2
import pytest
from standardwebhooks import Webhook
from support.daemon import wait_for
from support.installation import LEASE, TIMEOUT, Installation
from support.outages import crashed, frozen, stopped
from support.postgres import Server
from support.recorder import ELSEWHERE, HOOK, Behaviour, Recorder
from support.webhooks import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.daemon import Daemon
    from support.recorder import Recorded

PATIENT = 20.0
"""Seconds that an attempt may take where a test holds it up."""
OUTAGE = float(os.environ.get("WEBHOOK_OUTAGE", "4"))
"""Seconds for which PostgreSQL is away; a minute by ``WEBHOOK_OUTAGE=60``."""

pytestmark = pytest.mark.time_limit(120 + 2 * OUTAGE)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Give a receiver."""
    with Recorder() as made:
        yield made


@pytest.fixture
def installation(server: Server, recorder: Recorder, tmp_path: Path) -> Iterator[Installation]:
    """Give webhooks whose attempts may take long, without a daemon yet."""
    database = server.create_database()
    made = Installation(tmp_path, database, recorder, settings={"timeout": str(PATIENT)})
    yield made
    made.end()
    server.drop_database(database)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """Give a cluster that may be stopped."""
    made = Server()
    try:
        made.create()
        yield made
    finally:
        made.remove()


@contextmanager
def locked(installation: Installation, statement: str) -> Iterator[None]:
    """Hold a lock."""
    with closing(psycopg2.connect(installation.database.admin_uri)) as connection:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield


def wait_blocked(installation: Installation) -> None:
    """Wait until a statement of a daemon waits for a lock."""
    wait_for(
        lambda: installation.database.execute(
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ),
        "a statement that waits",
    )


def end_statements(installation: Installation) -> None:
    """Let what daemons' statements did be undone."""
    installation.database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where usename = 'authenticator' and datname = current_database()"
    )


def kill(daemon: Daemon) -> None:
    """End a daemon without a chance to do anything about it."""
    daemon.stop(signal.SIGKILL)


def verified(requests: list[Recorded]) -> list[Recorded]:
    """Return requests whose signatures and bodies are right: one id, one body."""
    for one in requests:
        Webhook(SECRET).verify(one.body, dict(one.headers))
        assert one.event["id"] == one.identifier
    assert len({one.identifier for one in requests}) == len({one.body for one in requests}) == 1
    return requests


# SIGKILL at every step of a delivery ---------------------------------------------------------------------


def before_the_claim(installation: Installation, daemon: Daemon) -> None:
    """Stop it before it can learn of the event."""
    daemon.process.send_signal(signal.SIGSTOP)
    installation.publish(1)
    kill(daemon)


def while_claiming(installation: Installation, daemon: Daemon) -> None:
    """Let its claim be carried out when nobody is there any more to hear of it."""
    daemon.process.send_signal(signal.SIGSTOP)
    installation.publish(1)
    with locked(installation, "lock table webhooks.due in share mode"):
        daemon.process.send_signal(signal.SIGCONT)
        wait_blocked(installation)
        kill(daemon)
    installation.wait_leased()


def after_the_claim(installation: Installation, daemon: Daemon) -> None:
    """Let it connect to a receiver that does not accept, so that nothing was sent yet."""
    with installation.recorder.unaccepting() as port:
        installation.database.execute("update webhooks.endpoint set url = %s", (f"http://127.0.0.1:{port}/",))
        installation.publish(1)
        installation.wait_leased()
        kill(daemon)
    installation.database.execute("update webhooks.endpoint set url = %s", (installation.url(),))


def during_the_post(installation: Installation, daemon: Daemon) -> None:
    """Let the receiver keep it waiting for the answer."""
    installation.recorder.behave(Behaviour.HANG)
    installation.publish(1)
    wait_for(lambda: installation.recorder.requests, "the request")
    kill(daemon)


def _until_the_commit(installation: Installation, daemon: Daemon, then: Callable[[], None]) -> None:
    """Let the receiver answer, hold up the outcome's record, kill the daemon, and do something."""
    installation.recorder.behave(Behaviour.HOLD)
    installation.publish(1)
    wait_for(lambda: installation.recorder.requests, "the request")
    with locked(installation, "select 1 from webhooks.due for update"):
        installation.recorder.behave(Behaviour.TAKE)
        wait_blocked(installation)
        kill(daemon)
        then()


def before_the_commit(installation: Installation, daemon: Daemon) -> None:
    """Let the outcome's record be undone."""
    _until_the_commit(installation, daemon, lambda: end_statements(installation))


def during_the_commit(installation: Installation, daemon: Daemon) -> None:
    """Let the outcome be recorded when nobody is there any more to hear of it."""
    _until_the_commit(installation, daemon, lambda: None)
    installation.wait_settled()


def after_the_commit(installation: Installation, daemon: Daemon) -> None:
    """Let everything be done."""
    installation.publish(1)
    installation.wait_settled()
    kill(daemon)


@pytest.mark.parametrize(
    ("step", "received"),
    [
        (before_the_claim, 1),
        (while_claiming, 1),
        (after_the_claim, 1),
        (during_the_post, 2),
        (before_the_commit, 2),
        (during_the_commit, 1),
        (after_the_commit, 1),
    ],
)
def test_a_daemon_killed_at_any_step_loses_nothing(
    installation: Installation, step: Callable[[Installation, Daemon], None], received: int
) -> None:
    """Once the dead daemon's lease is over another one delivers; only what was sent already comes again."""
    installation.endpoint()
    killed, other = installation.pair()
    other.process.send_signal(signal.SIGSTOP)
    step(installation, killed)
    installation.recorder.behave(Behaviour.TAKE)
    installation.pass_time(PATIENT + 10)
    other.process.send_signal(signal.SIGCONT)
    installation.wait_settled()
    [(event, *record)] = installation.records()
    assert record == ["automatic", 1, "success", True, 200]
    requests = verified(installation.recorder.at(HOOK))
    assert len(requests) == received
    assert requests[0].identifier == event
    assert requests[0].event["payload"]["number"] == 1


def test_daemons_killed_between_attempts_make_five_in_all(installation: Installation) -> None:
    """Specification, Limits: five automatic attempts, however many daemons it takes to make them."""
    installation.endpoint()
    installation.settings = {"timeout": str(PATIENT), "retry-waits": "2, 2, 2, 2"}
    installation.recorder.behave(Behaviour.REFUSE)
    daemon = installation.daemon()
    installation.publish(1)
    for attempts in (1, 3):
        wait_for(lambda: len(installation.records()) >= attempts, f"attempt {attempts}")  # noqa: B023
        kill(daemon)
        daemon = installation.daemon()
    installation.wait_settled()
    records = installation.records()
    assert [record[2:] for record in records] == [
        (number, "failed", number == 5, 500) for number in (1, 2, 3, 4, 5)
    ]
    assert len(verified(installation.recorder.at(HOOK))) == 5


def test_a_daemon_takes_over_when_the_lease_is_over(
    server: Server, recorder: Recorder, tmp_path: Path
) -> None:
    """In real time: not before the lease of the dead one ends, and soon after."""
    installation = Installation(tmp_path, server.create_database(), recorder)
    try:
        installation.endpoint()
        recorder.behave(Behaviour.HANG)
        killed, other = installation.pair()
        other.process.send_signal(signal.SIGSTOP)
        installation.publish(1)
        wait_for(lambda: recorder.requests, "the request")
        kill(killed)
        recorder.behave(Behaviour.TAKE)
        other.process.send_signal(signal.SIGCONT)
        installation.wait_settled()
    finally:
        installation.end()
    first, second = verified(recorder.at(HOOK))
    assert LEASE - 0.5 < second.at - first.at < LEASE + 3


# Several daemons -----------------------------------------------------------------------------------------


def test_two_daemons_share_a_queue_and_one_survives_the_other(installation: Installation) -> None:
    """Each event is one daemon's; what the killed one had sent and not recorded comes again, no more."""
    installation.endpoint()
    killed, other = installation.pair()
    installation.publish_many(2000)
    wait_for(lambda: len(installation.records()) > 300, "the first deliveries")
    kill(killed)
    installation.wait_only_leased()
    installation.pass_time(PATIENT + 10)
    installation.wait_settled()
    records = installation.records()
    assert Counter(record[1:] for record in records) == {("automatic", 1, "success", True, 200): 2000}
    assert len({record[0] for record in records}) == 2000
    requests = installation.recorder.at(HOOK)
    ids = {(one.event["payload"]["number"], one.identifier) for one in requests}
    assert sorted(number for number, _ in ids) == list(range(2000))
    # Whatever the killed one had under way or not yet recorded, which one statement's worth limits.
    assert len(requests) - 2000 <= 512
    made = other.metric('dataapi_webhooks_attempts_total{outcome="success"}')
    assert 0 < made < 2000


def test_an_attempt_that_two_claimed_counts_once(installation: Installation) -> None:
    """The database's clock steps over a lease: the attempt is made again, and recorded once (fencing)."""
    installation.endpoint()
    installation.recorder.behave(Behaviour.HOLD)
    daemons = installation.pair()
    installation.publish(1)
    wait_for(lambda: installation.recorder.requests, "the request")
    installation.pass_time(PATIENT + 10)
    wait_for(lambda: len(installation.recorder.requests) == 2, "the second request")
    installation.recorder.behave(Behaviour.TAKE)
    installation.wait_settled()
    for daemon in daemons:
        wait_for(lambda: daemon.metric("dataapi_webhooks_in_flight") == 0, "the end of both attempts")  # noqa: B023
    [(_, *record)] = installation.records()
    assert record == ["automatic", 1, "success", True, 200]
    assert len(verified(installation.recorder.at(HOOK))) == 2


# PostgreSQL ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", [stopped, crashed, frozen])
def test_deliveries_survive_postgresql_being_away(
    own_server: Server, recorder: Recorder, tmp_path: Path, away: Callable[[Server], Callable[[], None]]
) -> None:
    """What is under way is recorded once it is back, what waits is retried then, nothing is doubled."""
    settings = {"timeout": str(PATIENT + OUTAGE), "retry-waits": "2, 2, 2, 2"}
    installation = Installation(tmp_path, own_server.create_database(), recorder, settings=settings)
    try:
        installation.endpoint("/answered", "127.0.0.2")
        installation.endpoint("/retried")
        recorder.behave(Behaviour.HOLD, "/answered")
        recorder.behave(Behaviour.REFUSE, "/retried")
        daemon = installation.daemon()
        installation.publish(1)
        wait_for(lambda: recorder.at("/answered") and installation.records(), "the first attempts")
        comes_back = away(own_server)
        try:
            recorder.behave(Behaviour.TAKE, "/answered")
            recorder.behave(Behaviour.TAKE, "/retried")
            time.sleep(OUTAGE)
        finally:
            comes_back()
        daemon.wait_ready()
        installation.publish(2)
        installation.wait_settled(60)
    finally:
        installation.end()
    by_number = Counter((one.path, one.event["payload"]["number"]) for one in recorder.requests)
    assert by_number == {
        ("/answered", 1): 1, ("/answered", 2): 1, ("/retried", 1): 2, ("/retried", 2): 1,
    }  # fmt: skip
    assert Counter(record[3] for record in installation.records()) == {"success": 4, "failed": 1}


def test_a_daemon_stops_though_postgresql_says_nothing(
    own_server: Server, recorder: Recorder, tmp_path: Path
) -> None:
    """Claims that cannot be given back are left to their leases; another daemon loses none of them."""
    settings = {"timeout": str(PATIENT)}
    installation = Installation(tmp_path, own_server.create_database(), recorder, settings=settings)
    try:
        installation.endpoint()
        daemon = installation.daemon()
        installation.publish_many(2000)
        wait_for(lambda: len(recorder.requests) > 300, "the first deliveries")
        comes_back = frozen(own_server)
        try:
            assert daemon.stop() == 0
        finally:
            comes_back()
        installation.pass_time(PATIENT + 10)
        installation.daemon()
        installation.wait_settled()
    finally:
        installation.end()
    assert Counter(record[1:] for record in installation.records()) == {
        ("automatic", 1, "success", True, 200): 2000
    }


# Receivers -----------------------------------------------------------------------------------------------


def test_a_receiver_that_hangs_for_ever_holds_up_none_of_a_thousand(installation: Installation) -> None:
    """reference/webhooks.md 3, fairness: a cap per host."""
    installation.settings = {"timeout": "100", "concurrency-per-host": "2"}
    installation.recorder.behave(Behaviour.HANG, "/dead")
    installation.endpoint("/dead", "127.0.0.9")
    hosts = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(1000)]
    installation.endpoints(installation.url(f"/{number}", host) for number, host in enumerate(hosts))
    daemon = installation.daemon()
    for number in range(3):
        installation.publish(number)
    healthy = 3000
    wait_for(lambda: len(installation.recorder.requests) >= healthy + 2, "the healthy deliveries", 60)
    wait_for(lambda: len(installation.records()) == healthy, "their records")
    assert len(installation.recorder.at("/dead")) == daemon.metric("dataapi_webhooks_in_flight") == 2
    assert installation.due == 3
    assert Counter(one.path for one in installation.recorder.requests) == {
        "/dead": 2, **{f"/{number}": 3 for number in range(1000)},
    }  # fmt: skip


def test_a_redirect_is_a_failure_and_never_followed(installation: Installation) -> None:
    """reference/webhooks.md 3: a 3xx is a failure like any other."""
    installation.settings = {"retry-waits": "0.1, 0.1, 0.1, 0.1"}
    installation.endpoint()
    installation.recorder.behave(Behaviour.REDIRECT)
    installation.daemon()
    installation.publish(1)
    installation.wait_settled()
    assert len(verified(installation.recorder.at(HOOK))) == 5
    assert installation.recorder.at(ELSEWHERE) == []


# The clock -----------------------------------------------------------------------------------------------

STEPPING = """
import time
from pathlib import Path

_steady = time.time

def stepping():
    return _steady() + float(Path({path!r}).read_text())

time.time = stepping
"""


def test_retries_and_time_limits_do_not_follow_a_clock_that_steps(installation: Installation) -> None:
    """Waits are neither skipped nor prolonged by hours when the daemon's clock is set; stamps follow it."""
    folder = installation.folder / "clock"
    folder.mkdir()
    offset = folder / "offset"
    offset.write_text("0")
    (folder / "sitecustomize.py").write_text(STEPPING.format(path=str(offset)))
    installation.settings = {"timeout": str(TIMEOUT), "retry-waits": "2, 2, 2, 2"}
    installation.endpoint()
    installation.recorder.behave(Behaviour.REFUSE)
    installation.daemon(environ={"PYTHONPATH": str(folder)})
    installation.publish(1)
    wait_for(lambda: len(installation.records()) == 1, "the first attempt")
    offset.write_text("3600")
    installation.recorder.behave(Behaviour.HANG)
    wait_for(lambda: len(installation.recorder.requests) == 2, "the second attempt")
    offset.write_text("-3600")
    wait_for(lambda: len(installation.records()) == 2, "the end of the second attempt")
    installation.recorder.behave(Behaviour.TAKE)
    installation.wait_settled()
    first, second, third = installation.recorder.at(HOOK)
    assert 1.9 < second.at - first.at < 3
    assert 1.9 + TIMEOUT < third.at - second.at < 3 + TIMEOUT
    stamps = [int(one.headers["webhook-timestamp"]) for one in (first, second, third)]
    assert 3600 <= stamps[1] - stamps[0] < 3610
    assert -7210 < stamps[2] - stamps[1] <= -7190
    assert [json.loads(one.body)["id"] for one in (first, second, third)] == [first.identifier] * 3
