"""Which server was made the primary last, and which ones it has succeeded."""

from __future__ import annotations

from dataapi.database.succession import Lineage, Succession

CLUSTER, OTHER = 7, 8


def test_a_later_timeline_overtakes_an_earlier_one() -> None:
    """Whoever has connections to the earlier one is told, once."""
    succession = Succession()
    told: list[bool] = []
    succession.observe(lambda: told.append(succession.is_outdated(Lineage(CLUSTER, 1))))
    succession.add_primary(Lineage(CLUSTER, 1))
    assert not succession.is_outdated(Lineage(CLUSTER, 1))
    succession.add_primary(Lineage(CLUSTER, 3))
    succession.add_primary(Lineage(CLUSTER, 3))
    succession.add_primary(Lineage(CLUSTER, 2))
    assert told == [True]
    assert [succession.is_outdated(Lineage(CLUSTER, timeline)) for timeline in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_nothing_is_known_of_a_server_whose_timeline_is_unknown() -> None:
    """It may be written to, and gets no reads for another one."""
    succession = Succession()
    succession.add_primary(Lineage(CLUSTER, 2))
    assert not succession.is_outdated(None)
    assert not succession.is_current(None)


def test_clusters_that_have_nothing_in_common_are_not_compared() -> None:
    """A cluster that was made anew begins with timeline 1, and is no replica of the one before."""
    succession = Succession()
    assert not succession.is_current(Lineage(CLUSTER, 1))
    succession.add_primary(Lineage(CLUSTER, 5))
    assert not succession.is_outdated(Lineage(OTHER, 1))
    assert not succession.is_current(Lineage(OTHER, 9))
    succession.add_server(Lineage(OTHER, 9))
    assert not succession.is_current(Lineage(OTHER, 9))


def test_a_replica_may_tell_of_a_promotion() -> None:
    """It follows a primary that nobody else has seen yet."""
    succession = Succession()
    succession.add_primary(Lineage(CLUSTER, 1))
    succession.add_server(Lineage(CLUSTER, 2))
    assert succession.is_outdated(Lineage(CLUSTER, 1))
    assert succession.is_current(Lineage(CLUSTER, 2))


def test_servers_that_are_tried_last_keep_the_others_order() -> None:
    """The one that was left last comes last of all."""
    succession = Succession()
    for server in ("one", "two", "one"):
        succession.deprioritize(server)
    assert sorted(["one", "three", "two", "four"], key=succession.rank) == ["three", "four", "two", "one"]
