"""What the daemon says of its readiness."""

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
LACKING = WebhooksState(database_available=True, migrated=False, reason="no schema")
CURRENT = ReplicaState("one:5432", available=True, lag=0.0)
LAGGING = ReplicaState("two:5432", available=False, lag=99.0, reason="it is behind")
READY = ProjectState("p", database_available=True, generation=3, problems=("table x: bad",))
AWAY = ProjectState("q", database_available=False, generation=None)


@pytest.mark.parametrize(
    ("state", "ready"),
    [
        (DaemonState((READY,)), True),
        (DaemonState((ProjectState("p", database_available=False, generation=3),)), False),
        (DaemonState((ProjectState("p", database_available=True, generation=None),)), False),
        (DaemonState((ProjectState("p", database_available=True, generation=3, fault="no"),)), False),
        (DaemonState((READY, AWAY)), True),
        (DaemonState((READY, AWAY), requires_all=True), False),
        (DaemonState((READY, AWAY)).for_projects("p"), True),
        (DaemonState((READY, AWAY)).for_projects("q"), False),
        (DaemonState((READY, AWAY)).for_projects(("p", "q")), False),
        (DaemonState((READY,), draining=True), False),
        (DaemonState((READY,), starting=True), False),
        (DaemonState((), workers=0), False),
    ],
)
def test_ready_means_that_a_project_can_answer(state: DaemonState, ready: bool) -> None:
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
def test_reads_that_replicas_answer_need_no_primary(project: ProjectState, ready: bool, writes: bool) -> None:
    document = DaemonState((project,)).as_json()
    assert (document["ready"], document["writes"]) == (ready, writes)
    assert (document["projects"][0]["ready"], document["projects"][0]["writes"]) == (ready, writes)


def test_a_state_survives_the_pipe() -> None:
    away = ProjectState("q", database_available=False, generation=None, reason="away", fault="no")
    for webhooks in (None, WORKING, LACKING):
        state = DaemonState((READY, replace(away, replicas=(CURRENT, LAGGING))), webhooks=webhooks)
        assert state_from_json(json.loads(json.dumps(state.as_json()))) == state


def test_webhooks_that_do_not_work_are_reported_and_delay_no_traffic() -> None:
    state = DaemonState((READY,), webhooks=LACKING)
    assert state.ready
    assert state.as_json()["webhooks"]["ready"] is False
    assert combined([DaemonState((READY,), webhooks=WORKING), state]).webhooks == LACKING
    assert combined([DaemonState((READY,), webhooks=WORKING)]).webhooks == WORKING


def test_workers_together_are_as_ready_as_the_least_ready_one() -> None:
    newer = ProjectState("p", database_available=True, generation=4)
    away = ProjectState("p", database_available=False, generation=5, reason="away")
    reading = ProjectState("p", database_available=False, generation=6, replicas=(CURRENT,))
    assert not combined([DaemonState((reading,)), DaemonState((newer,))]).writes
    assert combined([DaemonState((newer,)), DaemonState((READY,))]) == DaemonState((READY,), workers=2)
    assert combined([DaemonState((newer,)), DaemonState((away,)), DaemonState((READY,))]) == DaemonState(
        (away,), workers=3
    )
    assert combined([DaemonState((READY,)), DaemonState((READY,), draining=True)]).draining
    assert not combined([]).ready
