"""Inspects the servers of ``db-read-uri`` for ``check-config``: whether each is a replica to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dataapi.database.address import prefers_standbys, servers
from dataapi.database.script import ScriptError, connected
from dataapi.database.server_watch import MAY_SEE_STATISTICS, SERVER_STATE, SERVER_STATE_SEEN
from dataapi.settings import Project

Fetch = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]

_ROLES = """
select name from unnest($1::text[]) name
where exists (select from pg_catalog.pg_roles where rolname = name)
    and not pg_catalog.pg_has_role(name, 'member')
"""
_SEES_RECEIVERS = f"select {MAY_SEE_STATISTICS}"
_SLOW_SUCCESSION = (
    "db-read-uri: after a failover a replica gets no reads before its next restartpoint, unless the login"
    " role is told at once whom it follows: grant pg_read_all_stats to it"
)


def replica_findings(project: Project, roles: Sequence[str], primary: Fetch) -> Iterator[tuple[str, bool]]:
    """Yield each finding, and whether it must be corrected; blocks.

    :param roles: those that requests run as.
    :param primary: runs SQL in the database of ``db-uri``.
    :raises ScriptError: when that one cannot be asked.
    """
    if project.db_read_uri is None:
        return
    sees_receivers, standbys = True, 0
    for server, uri in servers(project.db_read_uri).items():
        try:
            with connected(uri) as replica:
                standby = replica(SERVER_STATE, ())[0][0]
                standbys += standby
                for text in _faults(primary, replica, roles):
                    yield f"db-read-uri: {server} {text}", True
                if not standby and not prefers_standbys(project.db_read_uri):
                    yield f"db-read-uri: {server} is no standby; it gets reads all the same", False
                sees_receivers = sees_receivers and (not standby or replica(_SEES_RECEIVERS, ())[0][0])
        except ScriptError as error:
            yield f"db-read-uri: {server} cannot be checked: {' '.join(str(error).split())}", True
    if not standbys:
        yield "db-read-uri leads to no standby that answers, so that the primary answers all reads", False
    if not sees_receivers:
        yield _SLOW_SUCCESSION, False


def _faults(primary: Fetch, replica: Fetch, roles: Sequence[str]) -> Iterator[str]:
    """Yield what keeps a server from answering for the primary."""
    where, database = (
        fetch("select pg_catalog.current_database()", ())[0][0] for fetch in (replica, primary)
    )
    if where != database:
        yield f"leads to the database {where}, and db-uri to {database}"
    [(_, _, system, timeline)] = replica(SERVER_STATE_SEEN, ())
    [(_, _, expected, newest)] = primary(SERVER_STATE, ())
    if system != expected:
        yield "is no copy of the cluster of db-uri: their system identifiers differ"
    elif timeline < newest:
        yield f"is not known to follow the primary: it was seen on timeline {timeline} of {newest}"
    for (role,) in replica(_ROLES, (list(roles),)):
        yield f"is asked by a login role that may not become {role}"
