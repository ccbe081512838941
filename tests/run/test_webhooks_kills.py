"""SIGKILL at every step of a delivery: no event is lost, and only sent requests are repeated."""

from __future__ import annotations

import signal
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import psycopg2
import pytest
from support.daemon import wait_for
from support.installation import PATIENT, kill
from support.recorder import HOOK, Behaviour, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.daemon import Daemon
    from support.installation import Installation


@contextmanager
def locked(installation: Installation, statement: str) -> Iterator[None]:
    """Hold the locks that a statement acquires until the block ends."""
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
    """Terminate the daemons' connections, so that their statements are rolled back."""
    installation.database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where usename = 'authenticator' and datname = current_database()"
    )


def before_the_claim(installation: Installation, daemon: Daemon) -> None:
    """Kill the daemon before it detects the event."""
    daemon.process.send_signal(signal.SIGSTOP)
    installation.publish(1)
    kill(daemon)


def while_claiming(installation: Installation, daemon: Daemon) -> None:
    """Kill the daemon while its claim waits for a lock. The claim succeeds after the kill."""
    daemon.process.send_signal(signal.SIGSTOP)
    installation.publish(1)
    with locked(installation, "lock table webhooks.due in share mode"):
        daemon.process.send_signal(signal.SIGCONT)
        wait_blocked(installation)
        kill(daemon)
    installation.wait_leased()


def after_the_claim(installation: Installation, daemon: Daemon) -> None:
    """Kill the daemon before it sends the request, while the receiver accepts no connections."""
    with installation.recorder.unaccepting() as port:
        installation.database.execute("update webhooks.endpoint set url = %s", (f"http://127.0.0.1:{port}/",))
        installation.publish(1)
        installation.wait_leased()
        kill(daemon)
    installation.database.execute("update webhooks.endpoint set url = %s", (installation.url(),))


def during_the_post(installation: Installation, daemon: Daemon) -> None:
    """Kill the daemon while it waits for the response."""
    installation.recorder.behave(Behaviour.HANG)
    installation.publish(1)
    wait_for(lambda: installation.recorder.requests, "the request")
    kill(daemon)


def _until_the_commit(installation: Installation, daemon: Daemon, then: Callable[[], None]) -> None:
    """Kill the daemon while its statement that records an outcome waits for a lock. Then call a function."""
    installation.recorder.behave(Behaviour.HOLD)
    installation.publish(1)
    wait_for(lambda: installation.recorder.requests, "the request")
    with locked(installation, "select 1 from webhooks.due for update"):
        installation.recorder.behave(Behaviour.TAKE)
        wait_blocked(installation)
        kill(daemon)
        then()


def before_the_commit(installation: Installation, daemon: Daemon) -> None:
    """Kill the daemon and roll back the statement that records the outcome."""
    _until_the_commit(installation, daemon, lambda: end_statements(installation))


def during_the_commit(installation: Installation, daemon: Daemon) -> None:
    """Kill the daemon. PostgreSQL still completes the statement that records the outcome."""
    _until_the_commit(installation, daemon, lambda: None)
    installation.wait_settled()


def after_the_commit(installation: Installation, daemon: Daemon) -> None:
    """Kill the daemon after the delivery."""
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
def test_daemon_killed_at_any_step_loses_no_delivery(
    installation: Installation, step: Callable[[Installation, Daemon], None], received: int
) -> None:
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
