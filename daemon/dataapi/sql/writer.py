"""The ground of the SQL generator: qualified names, slots and the rows in scope."""

from __future__ import annotations

from dataapi.catalog.model import Function, MediaHandler, QualifiedName, Table, Type, Volatility
from dataapi.concurrency.pauses import pause
from dataapi.database.sql_text import ALIAS, quote_identifier
from dataapi.sql.algebra import Parameter, SlotSource

MOST_SEMIJOINS = 8
"""Conditions on whether rows exist that PostgreSQL may turn into joins, in one statement.

It weighs every order of such joins, nested ones included: planning thirty of them takes longer than clients
wait.  Conditions beyond that number are looked up for each row.
"""


def qualified(item: Table | Function | Type | MediaHandler | QualifiedName) -> str:
    """Return the quoted, schema-qualified name of a thing."""
    return f"{quote_identifier(item.schema)}.{quote_identifier(item.name)}"


class Writer:
    """Numbers the slots and aliases of one statement.

    Aliases are counted, not random, so that the same algebra always gives the same text.

    :ivar readings: statements that do nothing but read the value of a parameter, ``$1``, as this one does;
        they show whether a failure is the value's fault.
    :ivar limits: the slots that limit a number of rows, by their places from 0.
    :ivar volatile: whether a function is called that sees what the statement did so far.
    """

    def __init__(self) -> None:
        self.sources: list[SlotSource] = []
        self.types: list[str] = []
        self.readings: list[tuple[str, Parameter]] = []
        self.limits: list[int] = []
        self.volatile = False
        self._slots: dict[Parameter, str] = {}
        self._aliases = 0
        self._semijoins = 0

    def slot(self, parameter: Parameter) -> str:
        """Return the ``$n`` of a parameter.

        PostgreSQL infers one type for each slot, so one that leaves its type open is used once.
        """
        pause()
        slot = self._slots.get(parameter)
        if slot is None or parameter.type == "unknown":
            self.sources.append(parameter.source)
            self.types.append(parameter.type)
            slot = self._slots[parameter] = f"${len(self.sources)}"
        return slot

    def limit(self, parameter: Parameter) -> str:
        """Return the ``$n`` of a number of rows."""
        slot = self.slot(parameter)
        place = int(slot[1:]) - 1
        if place not in self.limits:
            self.limits.append(place)
        return slot

    def function(self, function: Function) -> str:
        """Return the name of a function to call."""
        self.volatile |= function.volatility is Volatility.VOLATILE
        return qualified(function)

    def alias(self) -> str:
        """Return an alias that this statement has not used yet, in quotes.

        No column is called so: a bare alias means the whole row only where no column has its name.
        """
        pause()
        self._aliases += 1
        return quote_identifier(f"{ALIAS}{self._aliases}")

    def joinable(self) -> bool:
        """Count a condition on whether rows exist; whether PostgreSQL may still turn it into a join."""
        self._semijoins += 1
        return self._semijoins <= MOST_SEMIJOINS


class Row:
    """A row in scope: how to name its columns, and which of them were named.

    An inner query selects a page and an outer one makes the output of its rows; the inner one must select
    the columns that the outer one named, and no more, because a role may lack the privilege on others.

    :ivar table: what the row is of, None where that is not known.
    """

    WHOLE = "~row"

    def __init__(self, alias: str, table: Table | None = None, *, derived: bool = False) -> None:
        self.alias = alias
        self.table = table
        self._derived = derived
        self.columns: dict[str, None] = {}
        self.needs_whole = False

    def column(self, name: str) -> str:
        """Return the SQL of a column."""
        self.columns[name] = None
        return f"{self.alias}.{quote_identifier(name)}"

    def type(self, name: str) -> int | None:
        """Return the oid of a column's type, None where that is not known."""
        column = None if self.table is None else self.table.column(name)
        return None if column is None else column.type

    def whole(self) -> str:
        """Return the SQL of the row as one composite value."""
        if not self._derived:
            return self.alias
        self.needs_whole = True
        return f"{self.alias}.{quote_identifier(self.WHOLE)}"

    def also(self, other: Row) -> None:
        """Name what was named of another row too."""
        self.columns.update(other.columns)
        self.needs_whole |= other.needs_whole

    def provided(self) -> list[str]:
        """Return the names of what the inner row must provide."""
        names = [quote_identifier(name) for name in self.columns]
        if self.needs_whole:
            names.append(quote_identifier(self.WHOLE))
        return names or ["1"]

    def selection_from(self, inner: Row) -> str:
        """Return the select list with which the inner row provides what was named of this one."""
        items = [inner.column(name) for name in self.columns]
        if self.needs_whole:
            items.append(f"{inner.whole()} as {quote_identifier(self.WHOLE)}")
        return ", ".join(items) or "1"
