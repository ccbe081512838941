"""Statements for a Citus coordinator: statements in DO blocks, and settings on workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataapi.database import sql_text
from dataapi.database.message import Bound, Statement


@dataclass(frozen=True, slots=True, eq=False)
class BlockStatement(Statement):
    """A statement that runs inside a ``DO`` block, as a string literal between ``before`` and ``after``."""

    before: str = ""
    after: str = ""

    def block_body(self, text: str) -> str:
        return f"{self.before}{sql_text.quote_literal(text)}{self.after}"


def set_local_body(settings: Sequence[tuple[str, str]]) -> str:
    """Return the body of a ``DO`` block that sets already quoted values with ``SET LOCAL``.

    Citus sends workers the complete text of a query that contains ``SET LOCAL``, but sends the statements of
    a ``DO`` block separately. Citus does not propagate ``set_config``.
    """
    statements = [f"set local {sql_text.checked_setting(name)} = {literal};" for name, literal in settings]
    return f"begin {''.join(statements)}end"


def propagate_settings(*names: str) -> Bound:
    """Return a statement that repeats the transaction's non-empty settings on workers."""
    names_sql = ",".join(sql_text.quote_literal(sql_text.checked_setting(name)) for name in names)
    text = (
        "do $dataapi$declare name text;begin "
        f"foreach name in array array[{names_sql}] loop "
        "if pg_catalog.current_setting(name, true) <> '' then "
        "execute pg_catalog.concat('set local ', name, ' = ', "
        "pg_catalog.quote_literal(pg_catalog.current_setting(name)));"
        "end if;end loop;end$dataapi$"
    )
    return Bound(Statement(text, (), prepared=False))
