"""The log of callers' SQL (``log-query``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.message import Bound

_log = Logger(namespace="dataapi.queries")


@dataclass(frozen=True, slots=True)
class QueryLog:
    """Logs statements with ``$1`` … in place of their values.

    :ivar every: whether it logs all of them; else those that fail, and those that are slow.
    :ivar slow: seconds from which on a statement is slow, None if none is.
    """

    every: bool
    slow: float | None

    def add(self, statements: Sequence[Bound], seconds: float, code: str) -> None:
        """Log what one message ran, if it is to be logged.

        :param code: of the error that it came to, "" without one.
        """
        if not statements or not (self.every or code or (self.slow is not None and seconds >= self.slow)):
            return
        sql = "; ".join([bound.statement.text for bound in statements])
        members = {"milliseconds": round(seconds * 1000, 3), "sql": sql}
        if code:
            _log.warn("SQL failed: {code}", code=code, **members)
        else:
            _log.info("SQL took {milliseconds} ms", **members)
