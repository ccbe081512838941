"""What a request's ``extensions`` ask to be told beside the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLError

from dataapi.access.caller import Caller
from dataapi.access.gate import SERVICE_ROLE
from dataapi.graphql.answer import Stage
from dataapi.graphql.document import Rejected


@dataclass(frozen=True, slots=True)
class Wanted:
    """The members of ``extensions`` that are true; others are nobody's.

    :ivar explain: PostgreSQL's plans of the operation's statements.
    :ivar cost: how many rows the operation may touch, and how many are allowed.
    """

    explain: bool = False
    cost: bool = False

    @classmethod
    def of(cls, extensions: Mapping[str, Any] | None) -> Wanted:
        """Read a request's ``extensions``."""
        if not extensions:
            return NOTHING
        return cls(extensions.get("explain") is True, extensions.get("cost") is True)

    def check(self, caller: Caller) -> None:
        """Refuse what the caller may not be told.

        :raises Rejected: plans show what is in tables, so they are for ``service_role``.
        """
        if self.explain and caller.role != SERVICE_ROLE:
            error = GraphQLError(
                f"extensions.explain is for {SERVICE_ROLE}.", extensions={"code": "EXPLAIN_NOT_ALLOWED"}
            )
            raise Rejected(Stage.VALIDATION, error)


NOTHING = Wanted()
