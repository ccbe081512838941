"""One REST request in its surroundings, and what it wants of the database.

The way of a request: ``handler`` makes a ``Context`` and asks the module of its action to plan;
planning is pure and gives a ``Planned``: statements to run, and how their row becomes the answer.
The handler runs it.  So a batch can plan several requests and run them in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dataapi.access.caller import Caller
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound
from dataapi.query.answers import Answered
from dataapi.query.sql import Compiled
from dataapi.rest.media import Media
from dataapi.rest.request.preferences import Preferences
from dataapi.rest.resolve.selecting import Selecting
from dataapi.rest.resolve.selection import Selection
from dataapi.rest.role import RoleView
from dataapi.settings import Project
from dataapi.web.messages import Reply, Request


@dataclass(frozen=True, slots=True)
class Context:
    """A request with everything that its plan depends on.

    :ivar role: what the caller's role sees of the catalog, with the plans made for it.
    :ivar target: the table's or function's name, "" for the root.
    :ivar schema: the exposed schema that the request chose.
    """

    request: Request
    caller: Caller
    catalog: Catalog
    role: RoleView
    project: Project
    target: str
    schema: str
    preferences: Preferences

    @property
    def reading(self) -> bool:
        """Whether the method only reads."""
        return self.request.method in ("GET", "HEAD")

    @property
    def profile(self) -> tuple[tuple[str, str], ...]:
        """The header that says which schema answers, where there are several."""
        return (("Content-Profile", self.schema),) if len(self.project.db_schemas) > 1 else ()

    def selecting(self, selection: Selection) -> Selecting:
        """Return what turns a selection of rows that are read into the algebra."""
        project = self.project
        return Selecting(
            self.role.tables, selection, project.db_max_rows, aggregates=project.db_aggregates_enabled
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """What a request wants of the database, and how its answer is made.

    :ivar statements: run in order in one transaction; the last one's row is an ``Answered``.
    :ivar finish: makes the reply; raises ``ApiError`` where the row is no answer (such as PGRST116).
    :ivar settings: further settings of the transaction, ``(name, value)``.
    :ivar media: where its ``explain`` says so, the last statement's plan is the answer.
    :ivar estimated: a statement without its page, whose planned number of rows becomes the row's total
        when that is None or beyond ``estimated_beyond``.
    """

    statements: tuple[Bound, ...]
    read_only: bool
    finish: Callable[[Answered], Reply]
    settings: tuple[tuple[str, str], ...] = ()
    estimated: Bound | None = None
    estimated_beyond: int | None = None
    media: Media | None = None


@dataclass(frozen=True, slots=True)
class Streamed:
    """A read whose rows are sent while they come.

    :ivar statement: gives one text per row: the bytes to send.
    :ivar head: the reply without its body.
    :ivar prefix: what is sent before the first row, such as a header line.
    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    """

    statement: Bound
    head: Reply
    prefix: bytes = b""
    settings: tuple[tuple[str, str], ...] = ()
    offset: int = 0


def bind(compiled: Compiled, values: object) -> Bound:
    """Return a statement with the values that its sources find in ``values``."""
    return Bound(compiled.statement, tuple([source.bind(values) for source in compiled.sources]))  # type: ignore[attr-defined]
