"""Catalogs for tests: read from a database without a reactor, or built in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg2
from dataapi.catalog.build import build_catalog
from dataapi.catalog.reflect import reflect
from twisted.internet.defer import Deferred, maybeDeferred, succeed

if TYPE_CHECKING:
    from dataapi.catalog.model import Catalog, Column, Table


def fetch_with(uri: str) -> Callable[[str, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]:
    """Return a blocking replacement for the pool's ``fetch`` that opens a connection for each call."""

    def run(text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(uri)
        try:
            with connection, connection.cursor() as cursor:
                for number in range(len(values), 0, -1):
                    text = text.replace(f"${number}", "%s")
                cursor.execute(text, tuple(values) or None)
                return cursor.fetchall()
        finally:
            connection.close()

    return lambda text, values: maybeDeferred(run, text, values)


def at_once(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    """Replace ``deferToThread``: run the function synchronously."""
    return succeed(function(*arguments))


def load_catalog(uri: str, *schemas: str) -> Catalog:
    """Load the catalog of a database without a reactor."""
    deferred = Deferred.fromCoroutine(reflect(fetch_with(uri), schemas or ("public",), 1, at_once))
    results: list[Catalog] = []
    deferred.addCallback(results.append)
    if not results:
        deferred.addErrback(lambda failure: failure.raiseException())
        raise AssertionError("the reflection has not ended")
    return results[0]


def table_named(catalog: Catalog, name: str, schema: str = "public") -> Table:
    return next(table for table in catalog.tables.values() if (table.schema, table.name) == (schema, name))


def column_named(table: Table, name: str) -> Column:
    return next(column for column in table.columns if column.name == name)


class MadeUp:
    """Describes a database that does not exist, in the format of the reflection query's result."""

    def __init__(
        self,
        schema_comment: str | None = None,
        schemas: Sequence[str] = ("public",),
        *,
        superuser: bool = False,
        features: frozenset[str] = frozenset(),
    ) -> None:
        """Create a database without tables.

        :param superuser: whether the role ``anon`` has every privilege.
        """
        self._features = features
        self._oid = 100
        self._schemas = {name: self._next() for name in schemas}
        self._names: dict[str, tuple[str, list[str]]] = {}
        self._document: dict[str, list[Any]] = {
            "server": [["0", "0", False, None, False, False]],
            "roles": [["10", "anon", superuser, [], [], False]],
            "acls": [["everybody", [["0", ["EXECUTE"]]]], ["nobody", []]],
            "schemas": [
                [oid, name, schema_comment if position == 0 else None, None]
                for position, (name, oid) in enumerate(self._schemas.items())
            ],
            "types": [
                _type("20", "int8", "b", "N"),
                _type("25", "text", "b", "S"),
                _type("2278", "void", "p", "P"),
            ],
        }

    def _next(self) -> str:
        self._oid += 1
        return str(self._oid)

    def table(
        self,
        name: str,
        *columns: str,
        key: Sequence[str] = ("id",),
        unique: Sequence[Sequence[str]] = (),
        comment: str | None = None,
        comments: dict[str, str] | None = None,
        kind: str = "r",
        schema: str = "public",
        types: Mapping[str, int] | None = None,
    ) -> int:
        """Add a table and return its OID.

        By default, columns with names that end in ``id`` have type ``bigint``, other columns ``text``.
        """
        of = {column: "20" if column.endswith(("id", "Id")) else "25" for column in columns}
        of |= {column: str(oid) for column, oid in (types or {}).items()}
        oid = self._next()
        rows = [
            [column, number, of[column], -1, column in key, None,
             False, "", (comments or {}).get(column), None, None, None]
            for number, column in enumerate(columns, 1)
        ]  # fmt: skip
        keys = [
            [
                f"{name}_key_{number}",
                " ".join(str(columns.index(part) + 1) for part in parts),
                len(parts),
                True,
                bool(key) and number == 0,
            ]
            for number, parts in enumerate([*([key] if key else []), *unique])
        ]
        self._names[f"{schema}.{name}"] = (oid, list(columns))
        self._document.setdefault("tables", []).append(
            [oid, self._schemas[schema], name, kind, self._next(), False, 28 if kind == "v" else None,
             "0", comment, "10", None, rows, keys, False, False, None]
        )  # fmt: skip
        return int(oid)

    def foreign_key(
        self, name: str, table: str, columns: Sequence[str], foreign: str, comment: str | None = None,
        foreign_columns: Sequence[str] = ("id",),
    ) -> None:  # fmt: skip
        """Add a foreign key between tables. A table outside ``public`` is named ``schema.table``."""
        oid, local = self._names[table if "." in table else f"public.{table}"]
        foreign_oid, remote = self._names[foreign if "." in foreign else f"public.{foreign}"]
        self._document.setdefault("foreign_keys", []).append(
            [name, oid, [local.index(column) + 1 for column in columns], foreign_oid,
             [remote.index(column) + 1 for column in foreign_columns], comment, True]
        )  # fmt: skip

    def enum(self, name: str, *labels: str, comment: str | None = None, schema: str = "public") -> int:
        oid = self._next()
        row = _type(oid, name, "e", "E", schema)
        row[10], row[13] = list(labels), comment
        self._document["types"].append(row)
        return int(oid)

    def array(self, element: int) -> int:
        oid = self._next()
        row = _type(oid, f"_{oid}", "A", "A", "public")
        row[4] = str(element)
        self._document["types"].append(row)
        return int(oid)

    def composite(self, name: str) -> int:
        """Add a composite type that does not belong to a table, and return its OID."""
        oid = self._next()
        row = _type(oid, name, "c", "C", "public")
        row[8] = self._next()
        self._document["types"].append(row)
        return int(oid)

    def row_type(self, name: str, table: int) -> None:
        """Add the row type of a table in ``public``, for functions that accept its rows."""
        (row,) = (row for row in self._document["tables"] if row[0] == str(table))
        found = _type(row[4], name, "c", "C", "public")
        found[8] = row[0]
        self._document["types"].append(found)

    def function(
        self, name: str, *types: int, comment: str | None = None, returns: int = 25,
        returns_set: bool = False, acl: str = "everybody",
    ) -> int:  # fmt: skip
        """Add a function to ``public`` and return its OID."""
        oid = self._next()
        self._document.setdefault("functions", []).append(
            [oid, self._schemas["public"], name, list(map(str, types)), None, None, None, False,
             str(returns), returns_set, 0, "s", None, comment, acl]
        )  # fmt: skip
        return int(oid)

    def catalog(self) -> Catalog:
        return build_catalog(self._document, 1, tuple(self._schemas), self._features)


def _type(oid: str, name: str, kind: str, category: str, schema: str = "pg_catalog") -> list[Any]:
    return [
        oid,
        schema,
        name,
        kind,
        "0",
        "0",
        -1,
        False,
        "0",
        category,
        None,
        None,
        None,
        None,
        None,
        name,
        None,
        None,
    ]
