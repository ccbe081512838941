"""Messages to a coordinator of Citus: settings are made on workers too, and blocks run some statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataapi.database import sql_text
from dataapi.database.citus import BlockStatement, set_locally
from dataapi.database.steps import BEGIN, Composer, Step, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataapi.database.message import Bound, Defaults, Message, Settings
    from dataapi.database.steps import PreparedStatements

_PROPAGATING = ("citus.propagate_set_commands", "local")
"""Lets Citus make on workers what ``SET LOCAL`` makes here."""


class CoordinatorComposer(Composer):
    """Composes the messages of one connection to a coordinator.

    Citus makes settings on workers only in transaction blocks, and PostgreSQL does not regard as one what is
    sent between two ``Sync`` messages.

    :param literal: quotes a value for ``DO``, which takes no others.
    """

    blocked = True

    def __init__(
        self, defaults: Defaults, prepared: PreparedStatements | None, literal: Callable[[str], str]
    ) -> None:
        super().__init__(defaults, prepared)
        self._literal = literal

    def whole(self, message: Message, comment: str = "", *, repeated: bool = False) -> list[Step]:
        own = message._replace(settings=_of_coordinator(message.settings))
        steps = super().whole(own, comment, repeated=repeated)
        first = len(steps) - len(message.statements)
        begun = message.isolation is not None or message.rollback
        *before, opening = steps[:first]
        found = [*before, *([] if begun else [BEGIN]), opening, *self._propagated(message.settings)]
        for step, bound in zip(steps[first:], message.statements, strict=True):
            found += self._in_block(step, bound)
        return found

    def _opened(self, role: str, settings: Settings, *, read_only: bool) -> list[Step]:
        steps = super()._opened(role, _of_coordinator(settings), read_only=read_only)
        return [*steps, *self._propagated(settings)]

    def _unprepared(self, bound: Bound, comment: str) -> Step:
        step = super()._unprepared(bound, comment)
        if not isinstance(bound.statement, BlockStatement):
            return step
        statement = bound.statement
        text = sql_text.written(statement.text, statement.types, self._literals(encoded(bound.values)))
        return self._block(statement.around(text))

    def _in_block(self, step: Step, bound: Bound) -> list[Step]:
        """Return the step, or what prepares a statement that a block runs, and the block."""
        statement = bound.statement
        if step.prepared is None or not isinstance(statement, BlockStatement):
            return [step]
        literals = self._literals(step.values or ())
        arguments = f"({','.join(literals)})" if literals else ""
        text = f"execute {step.prepared.name.decode()}{arguments}"
        return [step._replace(values=None), self._block(statement.around(text))]

    def _literals(self, values: Sequence[bytes | None]) -> list[str]:
        """Return literals of values, as ``DO`` takes no others."""
        return ["null" if value is None else self._literal(value.decode()) for value in values]

    def _block(self, body: str) -> Step:
        return Step(f"do {self._literal(body)}".encode())

    def _propagated(self, settings: Settings) -> list[Step]:
        """Return the block that makes the request's settings where the database has workers, if any.

        Others are PostgreSQL's own, and those of the coordinator hold for workers, too.
        """
        made = [(name, value) for name, value in settings if name.startswith(sql_text.REQUEST)]
        values = self._literals(encoded([value for _, value in made]))
        literals = [(name, literal) for (name, _), literal in zip(made, values, strict=True)]
        return [self._block(set_locally(literals))] if made else []


def _of_coordinator(settings: Settings) -> Settings:
    """Return the settings that no block makes, see ``CoordinatorComposer._propagated``."""
    return (_PROPAGATING, *[each for each in settings if not each[0].startswith(sql_text.REQUEST)])
