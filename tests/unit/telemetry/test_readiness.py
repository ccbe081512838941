"""The daemon's readiness."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from dataapi.telemetry.readiness import (
    DaemonState,
    ProjectState,
    ReplicaState,
    WebhooksState,
    combined,
    state_from_json,
)

WORKING = WebhooksState(database_available=True, migrated=True)
NOT_MIGRATED = WebhooksState(database_available=True, migrated=False, reason="no schema")
CURRENT = ReplicaState("one:5432", available=True, lag=0.0)
LAGGING = ReplicaState("two:5432", available=False, lag=99.0, reason="it is behind")
READY = ProjectState("p", database_available=True, generation=3, problems=("table x: bad",))
UNAVAILABLE = ProjectState("q", database_available=False, generation=None)


@pytest.mark.parametrize(
    ("state", "ready"),
    [
        (DaemonState((READY,)), True),
        (DaemonState((ProjectState("p", database_available=False, generation=3),)), False),
        (DaemonState((ProjectState("p", database_available=True, generation=None),)), False),
        (DaemonState((ProjectState("p", database_available=True, generation=3, fault="no"),)), False),
        (DaemonState((READY, UNAVAILABLE)), True),
        (DaemonState((READY, UNAVAILABLE), requires_all=True), False),
        (DaemonState((READY, UNAVAILABLE)).for_projects("p"), True),
        (DaemonState((READY, UNAVAILABLE)).for_projects("q"), False),
        (DaemonState((READY, UNAVAILABLE)).for_projects(("p", "q")), False),
        (DaemonState((READY,), draining=True), False),
        (DaemonState((READY,), starting=True), False),
        (DaemonState((), workers=0), False),
    ],
)
def test_daemon_is_ready_if_a_project_can_serve_requests(state: DaemonState, ready: bool) -> None:
    assert state.ready is ready
    assert state.as_json()["ready"] is ready


@pytest.mark.parametrize(
    ("project", "ready", "writes"),
    [
        (ProjectState("p", database_available=True, generation=3, replicas=(LAGGING,)), True, True),
        (ProjectState("p", database_available=False, generation=3, replicas=(CURRENT,)), True, False),
        (ProjectState("p", database_available=False, generation=3, replicas=(LAGGING,)), False, False),
        (ProjectState("p", database_available=False, generation=None, replicas=(CURRENT,)), False, False),
        (ProjectState("p", database_available=True, generation=3, standby=True), True, False),
    ],
)
def test_current_replica_makes_reads_ready_without_a_primary(
    project: ProjectState, ready: bool, writes: bool
) -> None:
    document = DaemonState((project,)).as_json()
    assert (document["ready"], document["writes"]) == (ready, writes)
    assert (document["projects"][0]["ready"], document["projects"][0]["writes"]) == (ready, writes)


def test_state_is_the_same_after_json() -> None:
    unavailable = ProjectState("q", database_available=False, generation=None, reason="away", fault="no")
    for webhooks in (None, WORKING, NOT_MIGRATED):
        state = DaemonState((READY, replace(unavailable, replicas=(CURRENT, LAGGING))), webhooks=webhooks)
        assert state_from_json(json.loads(json.dumps(state.as_json()))) == state


def test_broken_webhooks_are_reported_but_do_not_affect_readiness() -> None:
    state = DaemonState((READY,), webhooks=NOT_MIGRATED)
    assert state.ready
    assert state.as_json()["webhooks"]["ready"] is False
    assert combined([DaemonState((READY,), webhooks=WORKING), state]).webhooks == NOT_MIGRATED
    assert combined([DaemonState((READY,), webhooks=WORKING)]).webhooks == WORKING


def test_combined_state_is_that_of_the_least_ready_worker() -> None:
    newer = ProjectState("p", database_available=True, generation=4)
    unavailable = ProjectState("p", database_available=False, generation=5, reason="away")
    read_only = ProjectState("p", database_available=False, generation=6, replicas=(CURRENT,))
    assert not combined([DaemonState((read_only,)), DaemonState((newer,))]).writes
    assert combined([DaemonState((newer,)), DaemonState((READY,))]) == DaemonState((READY,), workers=2)
    assert combined(
        [DaemonState((newer,)), DaemonState((unavailable,)), DaemonState((READY,))]
    ) == DaemonState((unavailable,), workers=3)
    assert combined([DaemonState((READY,)), DaemonState((READY,), draining=True)]).draining
    assert not combined([]).ready
