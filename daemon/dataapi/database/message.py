"""What goes to PostgreSQL in one message: a caller's role, settings and statements.

A message is one simple-query string and so one implicit transaction: role and settings
are local to it and end with it (design: "One request, one network round trip").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement's text with ``$1`` … ``$n`` slots; compared by identity, prepared at first use.

    The text holds catalog identifiers and slots only, never text of a request.

    :ivar types: the SQL type name of each slot, such as ``bigint`` or ``text[]``;
        ``unknown`` leaves it to PostgreSQL to infer from the place of the slot.
    :ivar prepared: False for what ``PREPARE`` does not take, such as ``EXPLAIN``.
    """

    text: str
    types: tuple[str, ...]
    prepared: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement and the text form of its values; None is NULL."""

    statement: Statement
    values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """Everything that travels in one round trip.

    :ivar role: the role that the transaction runs under; never empty.
    :ivar settings: further transaction-local settings, ``(name, value)``, set after the role.
    :ivar statements: run in order; the last one's rows are the answer.
    :ivar read_only: whether the transaction refuses to write.
    :ivar isolation: the transaction's isolation level in upper case, such as ``SERIALIZABLE``; None leaves it
        to the login role's ``default_transaction_isolation``.
    :ivar rollback: undo everything once the answer is there, which takes a second round trip.
    :ivar caller: whose share of the connections a transaction of several messages takes; "" is nobody's.
    """

    role: str
    settings: tuple[tuple[str, str], ...]
    statements: tuple[Bound, ...]
    read_only: bool = True
    rollback: bool = False
    caller: str = ""
    isolation: str | None = None
