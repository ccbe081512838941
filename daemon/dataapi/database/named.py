"""Statements that a pooler keeps prepared for its clients, whichever server process runs them.

PgBouncer since 1.21 does so for those that the protocol's own messages prepare (``max_prepared_statements``),
and never for ``PREPARE``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dataapi.database import sql_text
from dataapi.database.prepared import opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.message import Defaults, Message, Statement

MOST = 500
"""Statements that are prepared on one connection: only its end lets the pooler forget them."""

_UNSAFE = re.compile(r"[^a-z0-9_]+")


class Step(NamedTuple):
    """A statement to run.

    :ivar name: what it is prepared by.
    :ivar text: prepares it by that name first; None if it is.
    """

    name: str
    text: str | None
    values: Sequence[str | None]


class _Name(NamedTuple):
    """What a statement is prepared by.

    :ivar order: the slots whose values it takes.
    """

    name: str
    order: tuple[int, ...]


@dataclass(slots=True)
class Steps:
    """A message's statements.

    :ivar made: the keys of those that it prepares, which an error leaves unprepared.
    """

    steps: list[Step] = field(default_factory=list)
    made: list[tuple[str, Statement]] = field(default_factory=list)


@dataclass(slots=True)
class NamedStatements:
    """The statements that one connection has prepared by name.

    A pooler shares those of the same text among its clients, and PostgreSQL plans one again that runs under
    another role than before, so that the text begins with the role.

    :ivar prefix: begins every name.
    """

    prefix: str
    _known: dict[tuple[str, Statement], _Name] = field(default_factory=dict)
    _count: int = 0
    _edition: str = ""

    @property
    def full(self) -> bool:
        """Whether the connection has prepared as many as it may."""
        return self._count >= MOST

    def steps(self, message: Message, defaults: Defaults) -> Steps | None:
        """Return the steps that a message is, None for one that has to be sent as text."""
        statements = message.statements
        if (
            message.isolation is not None
            or message.rollback
            or defaults.undo
            or defaults.distributed
            or not all(bound.statement.prepared for bound in statements)
        ):
            return None
        opening, values = opened(message, defaults)
        found = Steps()
        # The opening runs as the login role still.
        self._add(found, "", opening, [str(value) for value in values])
        for bound in statements:
            if len(bound.values) != len(bound.statement.types):
                raise ValueError(f"{len(bound.values)} values for {len(bound.statement.types)} slots")
            self._add(found, message.role, bound.statement, bound.values)
        return found

    def failed(self, steps: Steps) -> None:
        """Use none of the names again that the steps were to prepare."""
        for key in steps.made:
            self._known.pop(key, None)

    def renew(self) -> None:
        """Prepare everything anew, with texts that are new to the pooler, as it knows statements by them."""
        self._known.clear()
        self._edition = f"{self.prefix}{self._count} "

    def _add(
        self, found: Steps, role: str, statement: Statement, values: list[str] | tuple[str | None, ...]
    ) -> None:
        known, text = self._known.get((role, statement)), None
        if known is None:
            self._count += 1
            template = sql_text.typed(statement.text, statement.types)
            known = _Name(f"{self.prefix}{self._count}", template.order)
            self._known[role, statement] = known
            text = f"/*{self._edition}{_UNSAFE.sub('_', role.lower())}*/{template.text}"
            found.made.append((role, statement))
        found.steps.append(Step(known.name, text, [values[slot] for slot in known.order]))
