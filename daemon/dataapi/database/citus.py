"""Statements for a coordinator of Citus: those that blocks run, and those that make settings on workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataapi.database import sql_text
from dataapi.database.message import Bound, Statement


@dataclass(frozen=True, slots=True, eq=False)
class BlockStatement(Statement):
    """A statement that the body of a ``DO`` block runs.

    :ivar before, after: of the body, around a literal of the text that runs it.
    """

    before: str = ""
    after: str = ""

    def around(self, text: str) -> str:
        """Return the body for a text that runs the statement."""
        return f"{self.before}{sql_text.quote_literal(text)}{self.after}"


def set_locally(settings: Sequence[tuple[str, str]]) -> str:
    """Return the body of a ``DO`` that makes settings, their values quoted, by ``SET LOCAL``.

    Citus sends workers the text of a message that has ``SET LOCAL``, all of it; in a block each is a text of
    its own.  Of ``set_config`` it sends them nothing.
    """
    made = [f"set local {sql_text.checked(name)} = {literal};" for name, literal in settings]
    return f"begin {''.join(made)}end"


def made_on_workers(*names: str) -> Bound:
    """Return what makes settings of the transaction on workers, too, where they have a value."""
    listed = ",".join(sql_text.quote_literal(sql_text.checked(name)) for name in names)
    text = (
        "do $dataapi$declare name text;begin "
        f"foreach name in array array[{listed}] loop "
        "if pg_catalog.current_setting(name, true) <> '' then "
        "execute pg_catalog.concat('set local ', name, ' = ', "
        "pg_catalog.quote_literal(pg_catalog.current_setting(name)));"
        "end if;end loop;end$dataapi$"
    )
    return Bound(Statement(text, (), prepared=False))
