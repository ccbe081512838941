"""Values on their way to PostgreSQL and back, in its text format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader, PyFormat, Transformer

from dataapi.database import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult

Rows = list[tuple[Any, ...]]

_TEXT = psycopg.pq.Format.TEXT
_JSON = ("json", "jsonb")


class _Bytes(Loader):
    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _Hexadecimal(Dumper):
    """Writes bytes without libpq, whose own way depends on the connection made last."""

    oid = psycopg.adapters.types["bytea"].oid

    def dump(self, value: bytes) -> bytes:
        return b"\\x" + value.hex().encode()


class _Text(Loader):
    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


@dataclass(frozen=True)
class Context:
    """How values are adapted, for psycopg: JSON is passed through as it is, and identifiers are text."""

    adapters: AdaptersMap
    connection: None = None


def _context() -> Context:
    adapters = AdaptersMap(psycopg.adapters)
    for name in _JSON:
        adapters.register_loader(name, _Bytes)
    for name in ("cidr", "inet", "record", "uuid"):
        adapters.register_loader(name, _Text)
    adapters.register_dumper(bytes, _Hexadecimal)
    return Context(adapters)


CONTEXT = _context()

_transformer = Transformer(CONTEXT)
_loads: dict[int, Callable[[bytes], Any]] = {psycopg.adapters.types[name].oid: bytes for name in _JSON}


def rows(result: PGresult) -> Rows:
    """Return what a result holds."""
    columns = range(result.nfields)
    loads = []
    for column in columns:
        kind = result.ftype(column)
        load = _loads.get(kind)
        if load is None:
            load = _loads[kind] = _transformer.get_loader(kind, _TEXT).load
        loads.append(load)
    found = []
    for row in range(result.ntuples):
        values = []
        for column in columns:
            value = result.get_value(row, column)
            values.append(None if value is None else loads[column](value))
        found.append(tuple(values))
    return found


def encoded(values: Sequence[str | None]) -> list[bytes | None]:
    """Return the text form of values as it is sent; raises ``ApiError`` for what PostgreSQL cannot hold."""
    found: list[bytes | None] = []
    try:
        for value in values:
            if value is None:
                found.append(None)
            elif "\0" in value:
                raise errors.unsendable("the character NUL (U+0000)")
            else:
                found.append(value.encode())
    except UnicodeEncodeError:
        raise errors.unsendable("a lone surrogate (U+D800 to U+DFFF)") from None
    return found


def adapted(values: Sequence[object]) -> tuple[list[bytes | None], list[int]]:
    """Return values of Python's types as they are sent, and the oids of their types.

    Raises ``TypeError`` for one of a type that psycopg does not know, and ``ApiError`` for one that
    PostgreSQL cannot hold.
    """
    transformer = Transformer(CONTEXT)
    try:
        sent = transformer.dump_sequence(values, [PyFormat.TEXT] * len(values))
    except UnicodeEncodeError:
        raise errors.unsendable("a lone surrogate (U+D800 to U+DFFF)") from None
    except psycopg.DataError as error:
        if "NUL" not in str(error):
            raise TypeError(str(error)) from error
        raise errors.unsendable("the character NUL (U+0000)") from None
    except psycopg.ProgrammingError as error:
        raise TypeError(str(error)) from error
    return [None if value is None else bytes(value) for value in sent], list(transformer.types or ())
