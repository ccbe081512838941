"""Deliveries of daemons that are killed, disconnected, frozen, or have a wrong clock.

No published event is lost, repeated requests have the same ``webhook-id``, and the queue is finally empty.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from dataapi.webhooks.delivery.dispatcher import RELEASE_AFTER
from support.daemon import PATIENCE, patched, wait_for
from support.installation import LEASE, PATIENT, TIMEOUT, Installation, kill
from support.outages import crashed, frozen, stopped
from support.recorder import ELSEWHERE, HOOK, Behaviour, verified
from support.webhooks import migrated_copy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.daemon import Daemon
    from support.postgres import Server
    from support.recorder import Recorder

OUTAGE = float(os.environ.get("WEBHOOK_OUTAGE", "4"))
"""Downtime of PostgreSQL, in seconds (environment variable WEBHOOK_OUTAGE)."""

LONG = 1000.0
"""Offset that a test adds to the times in the database, in seconds."""

pytestmark = pytest.mark.time_limit(300 + 2 * OUTAGE)


# Several daemons -----------------------------------------------------------------------------------------


def test_daemons_killed_between_attempts_make_five_attempts(installation: Installation) -> None:
    installation.endpoint()
    installation.settings = {"timeout": str(PATIENT), "retry-waits": ", ".join([str(LONG)] * 4)}
    installation.recorder.behave(Behaviour.REFUSE)
    daemon = installation.daemon()
    installation.publish(1)
    for attempts in range(1, 5):
        wait_for(lambda: len(installation.records()) == attempts, f"attempt {attempts}")  # noqa: B023
        if attempts in (1, 3):
            kill(daemon)
            daemon = installation.daemon()
        installation.pass_time(LONG)
    installation.wait_settled()
    records = installation.records()
    assert [record[2:] for record in records] == [
        (number, "failed", number == 5, 500) for number in (1, 2, 3, 4, 5)
    ]
    assert len(verified(installation.recorder.at(HOOK))) == 5


def test_other_daemon_takes_over_when_the_lease_expires(
    server: Server, recorder: Recorder, tmp_path: Path
) -> None:
    installation = Installation(tmp_path, migrated_copy(server), recorder)
    try:
        installation.endpoint()
        recorder.behave(Behaviour.HANG)
        paused, other = installation.pair()
        other.process.send_signal(signal.SIGSTOP)
        installation.publish(1)
        wait_for(lambda: recorder.requests, "the request")
        lease_ends = end_of_lease(installation)
        paused.process.send_signal(signal.SIGSTOP)
        recorder.behave(Behaviour.TAKE)
        other.process.send_signal(signal.SIGCONT)
        installation.wait_settled()
    finally:
        installation.end()
    _, second, *_ = verified(recorder.at(HOOK))
    assert second.at >= lease_ends


def cut_off(daemon: Daemon) -> None:
    """Simulate the loss of a daemon's machine. PostgreSQL then closes the dead connections."""
    daemon.process.send_signal(signal.SIGSTOP)


@pytest.mark.parametrize("end", [kill, cut_off])
def test_work_of_a_dead_daemon_is_taken_over_before_lease_expires(
    installation: Installation, end: Callable[[Daemon], None]
) -> None:
    """PostgreSQL detects the end of the process long before the lease expires."""
    # A pooler would keep the connections open for longer than the lease.
    installation.past_pooler = True
    installation.settings = {"timeout": str(LONG)}
    installation.endpoint()
    installation.recorder.behave(Behaviour.HOLD)
    killed = installation.daemon()
    installation.publish(1)
    wait_for(lambda: installation.recorder.requests, "the request")
    sessions = installation.sessions
    installation.daemon()
    end(killed)
    installation.database.execute("select pg_terminate_backend(pid) from unnest(%s) pid", (sessions,))
    installation.recorder.behave(Behaviour.TAKE)
    installation.wait_settled()
    assert len(verified(installation.recorder.at(HOOK))) == 2


def end_of_lease(installation: Installation) -> float:
    """Return the monotonic time shortly before the only lease ends."""
    now = time.monotonic()
    [(seconds,)] = installation.database.execute(
        "select extract(epoch from claimable_at - clock_timestamp())::float8 from webhooks.due where leased"
    )
    assert LEASE - seconds < PATIENCE, "the lease has its full duration"
    return now + float(seconds)


def test_daemon_finishes_the_shared_queue_of_a_killed_daemon(installation: Installation) -> None:
    installation.endpoint()
    installation.recorder.behave(Behaviour.HOLD)
    killed, other = installation.pair()
    installation.publish_many(1000)
    for daemon in (killed, other):
        wait_for(lambda: daemon.metric("dataapi_webhooks_in_flight") > 0, "work for both")  # noqa: B023
    installation.recorder.behave(Behaviour.TAKE)
    wait_for(lambda: len(installation.records()) > 300, "the first deliveries")
    kill(killed)
    installation.wait_only_leased()
    installation.pass_time(PATIENT + 10)
    installation.wait_settled()
    records = installation.records()
    assert Counter(record[1:] for record in records) == {("automatic", 1, "success", True, 200): 1000}
    assert len({record[0] for record in records}) == 1000
    requests = installation.recorder.at(HOOK)
    ids = {(one.event["payload"]["number"], one.identifier) for one in requests}
    assert sorted(number for number, _ in ids) == list(range(1000))
    # The killed daemon may have had this many attempts in flight or unrecorded.
    assert len(requests) - 1000 <= 512
    made = other.metric('dataapi_webhooks_attempts_total{outcome="success"}')
    assert 0 < made < 1000


def test_attempt_claimed_twice_counts_once(installation: Installation) -> None:
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


@pytest.mark.parametrize("behaviour", [Behaviour.TAKE, Behaviour.REFUSE])
def test_outcome_recorded_after_lease_expiry_is_ignored(
    installation: Installation, behaviour: Behaviour
) -> None:
    installation.endpoint()
    installation.recorder.behave(Behaviour.HOLD)
    paused = installation.daemon()
    installation.publish(1)
    wait_for(lambda: installation.recorder.requests, "the request")
    paused.process.send_signal(signal.SIGSTOP)
    other = installation.daemon()
    installation.pass_time(PATIENT + 10)
    wait_for(lambda: len(installation.recorder.requests) == 2, "the same attempt of the other daemon")
    installation.recorder.behave(behaviour)
    installation.wait_settled()
    records = installation.records()
    paused.process.send_signal(signal.SIGCONT)
    wait_for(lambda: paused.metric("dataapi_webhooks_lost_outcomes_total") == 1, "the rejected outcome")
    other.stop()
    attempts = [1] if behaviour is Behaviour.TAKE else [1, 2, 3, 4, 5]
    assert [record[2] for record in records] == attempts
    assert installation.records() == records
    assert installation.due == 0
    assert len(verified(installation.recorder.at(HOOK))) == len(attempts) + 1


def test_resumed_daemon_skips_deliveries_taken_over_by_another(installation: Installation) -> None:
    installation.settings = {"timeout": str(PATIENT), "concurrency-per-host": "1"}
    installation.endpoint()
    paused = installation.daemon()
    installation.publish_many(400)
    requests = installation.recorder.requests
    # The daemon claims deliveries ahead for endpoints that respond quickly.
    wait_for(lambda: len(requests) > 100, "the first deliveries")
    installation.recorder.behave(Behaviour.HOLD)
    wait_for(
        lambda: requests[-1].behaviour is Behaviour.HOLD and len(installation.records()) == len(requests) - 1,
        "a delayed request, and the records of earlier ones",
    )
    paused.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    claimed = [each for each in installation.leases if each[1]]
    installation.recorder.behave(Behaviour.TAKE)
    other = installation.daemon()
    wait_for(lambda: installation.leases == claimed, "only the deliveries claimed by the paused daemon")
    installation.pass_time(PATIENT + 10)
    installation.wait_settled()
    wait_for(lambda: time.monotonic() - began > RELEASE_AFTER, "claimed work to be too old")
    paused.process.send_signal(signal.SIGCONT)
    wait_for(lambda: paused.metric("dataapi_webhooks_in_flight") == 0, "the end of the attempt")
    assert paused.stop() == 0
    assert other.stop() == 0
    assert Counter(record[1:] for record in installation.records()) == {
        ("automatic", 1, "success", True, 200): 400
    }
    sent = Counter(one.identifier for one in installation.recorder.at(HOOK))
    assert sorted(sent.values()) == [1] * 399 + [2]


# PostgreSQL ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outage", [stopped, crashed, frozen])
def test_deliveries_survive_a_postgresql_outage(
    own_server: Server, recorder: Recorder, tmp_path: Path, outage: Callable[[Server], Callable[[], None]]
) -> None:
    settings = {"timeout": str(PATIENT + OUTAGE), "retry-waits": ", ".join([str(LONG)] * 4)}
    installation = Installation(tmp_path, migrated_copy(own_server), recorder, settings=settings)
    try:
        installation.endpoint("/answered", "127.0.0.2")
        installation.endpoint("/retried")
        recorder.behave(Behaviour.HOLD, "/answered")
        recorder.behave(Behaviour.REFUSE, "/retried")
        daemon = installation.daemon()
        installation.publish(1)
        wait_for(lambda: recorder.at("/answered") and installation.records(), "the first attempts")
        resume = outage(own_server)
        try:
            recorder.behave(Behaviour.TAKE, "/answered")
            recorder.behave(Behaviour.TAKE, "/retried")
            time.sleep(OUTAGE)
        finally:
            resume()
        installation.pass_time(LONG)
        daemon.wait_ready()
        installation.publish(2)
        installation.wait_settled()
    finally:
        installation.end()
    by_number = Counter((one.path, one.event["payload"]["number"]) for one in recorder.requests)
    assert by_number == {
        ("/answered", 1): 1, ("/answered", 2): 1, ("/retried", 1): 2, ("/retried", 2): 1,
    }  # fmt: skip
    assert Counter(record[3] for record in installation.records()) == {"success": 4, "failed": 1}


def test_daemon_stops_while_postgresql_is_frozen(
    own_server: Server, recorder: Recorder, tmp_path: Path
) -> None:
    settings = {"timeout": str(PATIENT)}
    installation = Installation(tmp_path, migrated_copy(own_server), recorder, settings=settings)
    try:
        installation.endpoint()
        daemon = installation.daemon()
        installation.publish_many(1000)
        wait_for(lambda: len(recorder.requests) > 300, "the first deliveries")
        resume = frozen(own_server)
        try:
            assert daemon.stop() == 0
        finally:
            resume()
        installation.pass_time(PATIENT + 10)
        installation.daemon()
        installation.wait_settled()
    finally:
        installation.end()
    assert Counter(record[1:] for record in installation.records()) == {
        ("automatic", 1, "success", True, 200): 1000
    }


# Receivers -----------------------------------------------------------------------------------------------


def test_hanging_receiver_does_not_delay_other_receivers(installation: Installation) -> None:
    installation.settings = {"timeout": "100", "concurrency-per-host": "2"}
    installation.recorder.behave(Behaviour.HANG, "/dead")
    installation.endpoint("/dead", "127.0.0.9")
    hosts = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(1000)]
    installation.endpoints(installation.url(f"/{number}", host) for number, host in enumerate(hosts))
    daemon = installation.daemon()
    for number in range(3):
        installation.publish(number)
    healthy = 3000
    wait_for(lambda: len(installation.recorder.requests) >= healthy + 1, "the healthy deliveries")
    wait_for(lambda: len(installation.records()) == healthy, "their records")
    dead = len(installation.recorder.at("/dead"))
    assert 1 <= dead == daemon.metric("dataapi_webhooks_in_flight") <= 2
    assert installation.due == 3
    assert Counter(one.path for one in installation.recorder.requests) == {
        "/dead": dead, **{f"/{number}": 3 for number in range(1000)},
    }  # fmt: skip


def test_redirect_is_a_failure_and_is_not_followed(installation: Installation) -> None:
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


def test_retries_and_timeouts_ignore_clock_steps(installation: Installation) -> None:
    folder = installation.folder / "clock"
    folder.mkdir()
    offset = folder / "offset"
    offset.write_text("0")
    installation.settings = {"timeout": str(TIMEOUT), "retry-waits": "2, 2, 2, 2"}
    installation.endpoint()
    installation.recorder.behave(Behaviour.REFUSE)
    installation.daemon(environ=patched(folder, STEPPING.format(path=str(offset))))
    installation.publish(1)
    wait_for(lambda: len(installation.records()) == 1, "the first attempt")
    offset.write_text("3600")
    installation.recorder.behave(Behaviour.HANG)
    wait_for(lambda: len(installation.recorder.requests) == 2, "the second attempt")
    offset.write_text("-3600")
    wait_for(lambda: len(installation.records()) == 2, "the end of the second attempt")
    installation.recorder.behave(Behaviour.TAKE)
    installation.wait_settled()
    first, second, third, *_ = installation.recorder.at(HOOK)
    assert 1.9 < second.at - first.at < 1000
    assert 1.9 + TIMEOUT < third.at - second.at < 1000
    stamps = [int(one.headers["webhook-timestamp"]) for one in (first, second, third)]
    assert 3600 <= stamps[1] - stamps[0] < 3600 + 1000
    assert -7200 - 10 < stamps[2] - stamps[1] < -7200 + 1000
    assert len({one.identifier for one in (first, second, third)}) == 1
