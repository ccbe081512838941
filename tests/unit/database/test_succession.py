"""Detection of the most recently promoted primary."""

from __future__ import annotations

from dataapi.database.succession import Lineage, Succession

CLUSTER, OTHER = 7, 8


def test_later_timeline_outdates_an_earlier_one() -> None:
    succession = Succession()
    outdated: list[bool] = []
    succession.observe(lambda: outdated.append(succession.is_outdated(Lineage(CLUSTER, 1))))
    succession.add_primary(Lineage(CLUSTER, 1))
    assert not succession.is_outdated(Lineage(CLUSTER, 1))
    succession.add_primary(Lineage(CLUSTER, 3))
    succession.add_primary(Lineage(CLUSTER, 3))
    succession.add_primary(Lineage(CLUSTER, 2))
    assert outdated == [True]
    assert [succession.is_outdated(Lineage(CLUSTER, timeline)) for timeline in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_server_with_unknown_timeline_is_neither_outdated_nor_current() -> None:
    succession = Succession()
    succession.add_primary(Lineage(CLUSTER, 2))
    assert not succession.is_outdated(None)
    assert not succession.is_current(None)


def test_unrelated_clusters_are_not_compared() -> None:
    """A recreated cluster starts at timeline 1 and is not a replica of its predecessor."""
    succession = Succession()
    assert not succession.is_current(Lineage(CLUSTER, 1))
    succession.add_primary(Lineage(CLUSTER, 5))
    assert not succession.is_outdated(Lineage(OTHER, 1))
    assert not succession.is_current(Lineage(OTHER, 9))
    succession.add_server(Lineage(OTHER, 9))
    assert not succession.is_current(Lineage(OTHER, 9))


def test_replica_reveals_a_promotion() -> None:
    """A replica may follow a primary that the daemon has not contacted yet."""
    succession = Succession()
    succession.add_primary(Lineage(CLUSTER, 1))
    succession.add_server(Lineage(CLUSTER, 2))
    assert succession.is_outdated(Lineage(CLUSTER, 1))
    assert succession.is_current(Lineage(CLUSTER, 2))


def test_deprioritized_servers_are_ranked_last() -> None:
    succession = Succession()
    for server in ("one", "two", "one"):
        succession.deprioritize(server)
    assert sorted(["one", "three", "two", "four"], key=succession.rank) == ["three", "four", "two", "one"]
