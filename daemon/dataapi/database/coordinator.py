"""Composes messages to a Citus coordinator. DO blocks set workers' settings and run ``BlockStatement``s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataapi.database import sql_text
from dataapi.database.citus import BlockStatement, set_local_body
from dataapi.database.steps import BEGIN, Composer, Step, encode_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataapi.database.message import Bound, Defaults, Message, Settings
    from dataapi.database.steps import PreparedStatements

_PROPAGATING = ("citus.propagate_set_commands", "local")
"""Setting that makes Citus repeat ``SET LOCAL`` on workers."""


class CoordinatorComposer(Composer):
    """Composes the messages of one connection to a Citus coordinator.

    Citus propagates settings to workers only in transaction blocks, but the implicit transaction between two
    ``Sync`` messages is not a block.

    :param literal: quotes a value, because ``DO`` does not accept parameters.
    """

    blocked = True

    def __init__(
        self, defaults: Defaults, prepared: PreparedStatements | None, literal: Callable[[str], str]
    ) -> None:
        super().__init__(defaults, prepared)
        self._literal = literal

    def compose(
        self, message: Message, comment: str = "", *, repeated: bool = False, time_limit: int | None = None
    ) -> list[Step]:
        local = message._replace(settings=_coordinator_settings(message.settings))
        steps = super().compose(local, comment, repeated=repeated, time_limit=time_limit)
        first = len(steps) - len(message.statements)
        has_begun = message.isolation is not None or message.rollback
        *before, setup = steps[:first]
        steps_to_send = [*before, *([] if has_begun else [BEGIN]), setup, *self._propagated(message.settings)]
        for step, bound in zip(steps[first:], message.statements, strict=True):
            steps_to_send += self._in_block(step, bound)
        return steps_to_send

    def _setup_steps(self, role: str, settings: Settings, *, read_only: bool) -> list[Step]:
        steps = super()._setup_steps(role, _coordinator_settings(settings), read_only=read_only)
        return [*steps, *self._propagated(settings)]

    def _unprepared(self, bound: Bound, comment: str) -> Step:
        step = super()._unprepared(bound, comment)
        if not isinstance(bound.statement, BlockStatement):
            return step
        statement = bound.statement
        text = sql_text.substitute_literals(
            statement.text, statement.types, self._literals(encode_values(bound.values))
        )
        return self._block(statement.block_body(text))

    def _in_block(self, step: Step, bound: Bound) -> list[Step]:
        statement = bound.statement
        if step.prepared is None or not isinstance(statement, BlockStatement):
            return [step]
        literals = self._literals(step.values or ())
        arguments = f"({','.join(literals)})" if literals else ""
        text = f"execute {step.prepared.name.decode()}{arguments}"
        return [step._replace(values=None), self._block(statement.block_body(text))]

    def _literals(self, values: Sequence[bytes | None]) -> list[str]:
        return ["null" if value is None else self._literal(value.decode()) for value in values]

    def _block(self, body: str) -> Step:
        return Step(f"do {self._literal(body)}".encode())

    def _propagated(self, settings: Settings) -> list[Step]:
        """Return a step that sets the request's settings on workers, or no step if there are none.

        All other settings are PostgreSQL's own, and the coordinator's values also apply on workers.
        """
        propagated = [(name, value) for name, value in settings if name.startswith(sql_text.REQUEST)]
        values = self._literals(encode_values([value for _, value in propagated]))
        literals = [(name, literal) for (name, _), literal in zip(propagated, values, strict=True)]
        return [self._block(set_local_body(literals))] if propagated else []


def _coordinator_settings(settings: Settings) -> Settings:
    return (_PROPAGATING, *[each for each in settings if not each[0].startswith(sql_text.REQUEST)])
