"""Checks the servers of ``db-read-uri`` for ``check-config``."""

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
_MAY_SEE_RECEIVERS = f"select {MAY_SEE_STATISTICS}"
_SLOW_SUCCESSION = (
    "db-read-uri: after a failover, a replica gets no reads until its next restartpoint, unless the login"
    " role may see which server it follows: grant pg_read_all_stats to the login role"
)


def replica_findings(project: Project, roles: Sequence[str], primary: Fetch) -> Iterator[tuple[str, bool]]:
    """Yield each finding, and whether it is an error. Blocks.

    ``primary`` runs SQL in the database of ``db-uri``. Raises ``ScriptError`` if that database cannot be
    queried.
    """
    if project.db_read_uri is None:
        return
    may_see_receivers, standbys = True, 0
    for server, uri in servers(project.db_read_uri).items():
        try:
            with connected(uri) as replica:
                standby = replica(SERVER_STATE, ())[0][0]
                standbys += standby
                for text in _faults(primary, replica, roles):
                    yield f"db-read-uri: {server} {text}", True
                if not standby and not prefers_standbys(project.db_read_uri):
                    yield f"db-read-uri: {server} is not a standby; it gets reads nevertheless", False
                may_see_receivers = may_see_receivers and (
                    not standby or replica(_MAY_SEE_RECEIVERS, ())[0][0]
                )
        except ScriptError as error:
            yield f"db-read-uri: {server} cannot be checked: {' '.join(str(error).split())}", True
    if not standbys:
        yield "db-read-uri: no standby responds, so the primary serves all reads", False
    if not may_see_receivers:
        yield _SLOW_SUCCESSION, False


def _faults(primary: Fetch, replica: Fetch, roles: Sequence[str]) -> Iterator[str]:
    replica_database, database = (
        fetch("select pg_catalog.current_database()", ())[0][0] for fetch in (replica, primary)
    )
    if replica_database != database:
        yield f"has the database {replica_database}, but db-uri has {database}"
    [(_, _, system, timeline)] = replica(SERVER_STATE_SEEN, ())
    [(_, _, expected, newest)] = primary(SERVER_STATE, ())
    if system != expected:
        yield "is not a copy of the cluster of db-uri: the system identifiers differ"
    elif timeline < newest:
        yield f"is not known to follow the primary: its timeline is {timeline}, the primary's is {newest}"
    for (role,) in replica(_ROLES, (list(roles),)):
        yield f"has a login role that is not a member of {role}"
