"""SQL at set-up time and from the command line, over a blocking connection of its own."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import RawCursor
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from twisted.internet.threads import deferToThread

from dataapi.database.address import (
    ATTRIBUTES,
    connection_parameters,
    leads_to_standbys,
    lists_several,
    look_up,
    places,
)
from dataapi.database.errors import refused, version_refusal
from dataapi.database.pooler import keeps_statements
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
"""Seconds that connecting may take when the connection string says nothing else."""
_LOOK_TIMEOUT = 2
"""Seconds that connecting to each server may take while the newest primary is looked for."""


class ScriptError(Exception):
    """The database refused the statement or could not be reached; the text says why.

    :ivar sqlstate: PostgreSQL's code, None if it could not be reached.
    """

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


async def run_script(uri: str, text: str) -> Rows:
    """Run SQL statements in a thread, each committed by itself, and return the last one's rows.

    :raises ScriptError: when the database refuses one or cannot be reached.
    """
    found: Rows = await deferToThread(_run, uri, text)
    return found


def _run(uri: str, text: str) -> Rows:
    with _connection(uri) as connection:
        cursor = connection.execute(text)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []


class ServerTooOld(ScriptError):
    """The database can be reached, and is of a version that is not supported."""


def _fetched(connection: _Connection, text: str, values: Sequence[object]) -> Rows:
    """Run SQL with ``$1`` places for values as one transaction; return the last statement's rows."""
    # The statements between two Sync messages are one.
    with connection.pipeline():
        for statement in split(text):
            cursor = connection.execute(statement.text, statement.arrange(list(values)))
    # psycopg's cursor would read dates in the style that the session began with.
    return rows(cursor.pgresult) if cursor.pgresult else []


@contextmanager
def connected(uri: str) -> Iterator[Callable[[str, Sequence[object]], Rows]]:
    """Give a function that runs SQL with ``$1`` places for values and returns the last statement's rows.

    :raises ScriptError: when the database refuses a statement, cannot be reached or is too old.
    """
    with _connection(uri) as connection:

        def fetch(text: str, values: Sequence[object]) -> Rows:
            return _fetched(connection, BEGIN_OWN_SQL + text, values)

        yield fetch


@contextmanager
def _connection(uri: str) -> Iterator[_Connection]:
    try:
        parameters: dict[str, Any] = {
            "connect_timeout": _CONNECT_TIMEOUT,
            **connection_parameters(uri),
        }
        if lists_several(parameters) and not leads_to_standbys(uri):
            parameters = _past_old_primaries(parameters)
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


def _past_old_primaries(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the newest primary if an older one still accepts writes, else the same ones.

    :param parameters: libpq's, which list several hosts.
    """
    succession = Succession()
    found = [
        (place.parameters, _lineage(place.parameters))
        for place in places(parameters, look_up)
        if not place.problem
    ]
    for _, lineage in found:
        if lineage is not None:
            succession.see(lineage)
    if not any(succession.overtaken(lineage) for _, lineage in found):
        return parameters
    return next(place for place, lineage in found if succession.follows(lineage))


def _lineage(place: dict[str, Any]) -> Lineage | None:
    """Return a server's lineage, None if it is a standby, has no timelines or does not answer."""
    asked = {**place, ATTRIBUTES: "any", "connect_timeout": _LOOK_TIMEOUT}
    try:
        with closing(_connect(asked)) as connection:
            row = connection.execute(PRIMARY_LINEAGE).fetchone()
            return None if row is None else Lineage(*row)
    except psycopg.Error:
        return None


class _Blocking:
    """A connection that ``keeps_statements`` waits for."""

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


def statements_are_kept(uri: str) -> bool:
    """Return whether a pooler keeps prepared statements, see ``pooler.keeps_statements``.

    :raises ScriptError: when the database cannot be reached.
    """
    with _connection(uri) as connection:
        return complete(keeps_statements(_Blocking(connection)))


class ScriptDatabase:
    """A blocking connection with the interface of a pool, for code that runs without a reactor."""

    def __init__(self, fetch: Callable[[str, Sequence[object]], Rows]) -> None:
        self._fetch = fetch

    async def fetch(self, text: str, values: Sequence[object] = ()) -> Rows:
        """Run SQL as one transaction and return the last statement's rows; raises ``ApiError``."""
        try:
            return self._fetch(text, values)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            raise refused(error, anonymous=False) from error


@contextmanager
def opened(uri: str) -> Iterator[ScriptDatabase]:
    """Give a database by its connection string.

    :raises ScriptError: when the database cannot be reached, or is lost on the way.
    """
    with connected(uri) as fetch:
        yield ScriptDatabase(fetch)


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing, such as one over a ``ScriptDatabase``."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("the coroutine waited for something")
