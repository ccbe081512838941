"""Runs SQL for commands and setup, on blocking connections."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import RawCursor
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from twisted.internet.threads import deferToThread

from dataapi.database.address import (
    SESSION_ATTRS,
    connection_parameters,
    has_several_hosts,
    prefers_standbys,
    resolve_host,
    targets,
)
from dataapi.database.errors import from_postgres, version_refusal
from dataapi.database.pooler import supports_prepared
from dataapi.database.sql_text import BEGIN_OWN_SQL, split
from dataapi.database.steps import CONTEXT, rows
from dataapi.database.succession import PRIMARY_LINEAGE, Lineage, Succession

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from psycopg.pq.abc import PGresult

    from dataapi.database.steps import Rows, Step

T = TypeVar("T")
_Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT = 10
"""Default connection timeout, in seconds."""
_PROBE_TIMEOUT = 2
"""Connection timeout per server when searching for the newest primary, in seconds."""


class ScriptError(Exception):
    """Raised when a statement fails or the database cannot be reached.

    :ivar sqlstate: PostgreSQL's error code, None if the database could not be reached.
    """

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


async def run_script(uri: str, text: str) -> Rows:
    """Run SQL in a thread, and return the last statement's rows.

    The SQL is one transaction unless it contains statements such as ``commit``.

    :raises ScriptError: if a statement fails or the database cannot be reached.
    """
    rows: Rows = await deferToThread(_run, uri, text)
    return rows


def _run(uri: str, text: str) -> Rows:
    with _connection(uri) as connection:
        cursor = connection.execute(text)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []


class ServerTooOld(ScriptError):
    """Raised when the server's version is not supported."""


def _fetch_rows(connection: _Connection, text: str, values: Sequence[object]) -> Rows:
    # The statements between two Sync messages are one transaction.
    with connection.pipeline():
        for statement in split(text):
            cursor = connection.execute(statement.text, statement.arrange(list(values)))
    # psycopg's cursor would parse dates in the DateStyle that the session started with.
    return rows(cursor.pgresult) if cursor.pgresult else []


@contextmanager
def connected(uri: str) -> Iterator[Callable[[str, Sequence[object]], Rows]]:
    """Yield a function that runs SQL with ``$1`` … parameters and returns the last statement's rows.

    :raises ScriptError: if a statement fails, or if the database cannot be reached or is too old.
    """
    with _connection(uri) as connection:

        def fetch(text: str, values: Sequence[object]) -> Rows:
            return _fetch_rows(connection, BEGIN_OWN_SQL + text, values)

        yield fetch


@contextmanager
def _connection(uri: str) -> Iterator[_Connection]:
    try:
        parameters: dict[str, Any] = {
            "connect_timeout": _CONNECT_TIMEOUT,
            **connection_parameters(uri),
        }
        if has_several_hosts(parameters) and not prefers_standbys(uri):
            parameters = _skip_old_primaries(parameters)
        with closing(_connect(parameters)) as connection:
            if refusal := version_refusal(connection.info.server_version):
                raise ServerTooOld(refusal)
            yield connection
    except psycopg.Error as error:
        raise ScriptError(str(error).strip(), error.sqlstate) from error


def _connect(parameters: dict[str, Any]) -> _Connection:
    return psycopg.connect(
        autocommit=True, cursor_factory=RawCursor, context=CONTEXT, prepare_threshold=None, **parameters
    )


def _skip_old_primaries(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the newest primary if an old one still accepts writes, else ``parameters``."""
    succession = Succession()
    servers = [
        (target.parameters, _lineage(target.parameters))
        for target in targets(parameters, resolve_host)
        if not target.problem
    ]
    for _, lineage in servers:
        if lineage is not None:
            succession.add_primary(lineage)
    if not any(succession.is_outdated(lineage) for _, lineage in servers):
        return parameters
    return next(target for target, lineage in servers if succession.is_current(lineage))


def _lineage(server: dict[str, Any]) -> Lineage | None:
    parameters = {**server, SESSION_ATTRS: "any", "connect_timeout": _PROBE_TIMEOUT}
    try:
        with closing(_connect(parameters)) as connection:
            row = connection.execute(PRIMARY_LINEAGE).fetchone()
            return None if row is None else Lineage(*row)
    except psycopg.Error:
        return None


class _Blocking:
    def __init__(self, connection: _Connection) -> None:
        self._pgconn = connection.pgconn

    async def send(self, steps: Sequence[Step]) -> Rows:
        for text, values, _, prepared in steps:
            if prepared is not None:
                self._checked(self._pgconn.prepare(prepared.name, text))
                result = self._checked(
                    self._pgconn.exec_prepared(prepared.name, [value or b"" for value in values or ()])
                )
            else:
                result = self._checked(self._pgconn.exec_params(text, values))
        return rows(result)

    def _checked(self, result: PGresult) -> PGresult:
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result)
        return result


def pooler_supports_prepared(uri: str) -> bool:
    """Whether a pooler supports prepared statements. See ``pooler.supports_prepared``.

    :raises ScriptError: if the database cannot be reached.
    """
    with _connection(uri) as connection:
        return complete(supports_prepared(_Blocking(connection)))


class ScriptDatabase:
    """A blocking connection with the interface of a pool, for code without a reactor."""

    def __init__(self, fetch: Callable[[str, Sequence[object]], Rows]) -> None:
        self._fetch = fetch

    async def fetch(self, text: str, values: Sequence[object] = ()) -> Rows:
        """Run SQL as one transaction. Return the last statement's rows, or raise ``ApiError``."""
        try:
            return self._fetch(text, values)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            raise from_postgres(error, anonymous=False) from error


@contextmanager
def opened(uri: str) -> Iterator[ScriptDatabase]:
    """Yield a ``ScriptDatabase``.

    :raises ScriptError: if the database cannot be reached or the connection is lost.
    """
    with connected(uri) as fetch:
        yield ScriptDatabase(fetch)


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, such as one that uses a ``ScriptDatabase``."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("the coroutine waited for something")
