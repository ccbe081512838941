"""The functions and media type aggregates that one role may use; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataapi.catalog.formats import MediaHandler
from dataapi.catalog.model import Catalog, Function
from dataapi.catalog.privileges import Privileges
from dataapi.database.sqlstate import Diagnostics, to_error
from dataapi.query.writer import qualified
from dataapi.rest.functions.outcomes import Outcome, content_of, outcome_of
from dataapi.rest.functions.overloads import is_callable
from dataapi.rest.media import Producer
from dataapi.rest.resolve.spelling import Names


class Functions:
    """What of a catalog's functions a role may call; the others are refused in PostgreSQL's words.

    Found out at first use, so that roles that only read tables cost nothing.

    :param anonymous: whether it is the role of callers that are nobody.
    """

    def __init__(self, catalog: Catalog, role: str, *, anonymous: bool) -> None:
        self._catalog = catalog
        self._role = role
        self._anonymous = anonymous
        self._named: Mapping[tuple[str, str], Sequence[Function]] | None = None
        self._names: dict[str, Names] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._producers: tuple[Producer, ...] | None = None

    def named(self, schema: str, name: str) -> Sequence[Function]:
        """Return the functions of a name, which share it when it is overloaded; none when it is unknown.

        :raises ApiError: 42501 (401, 403), there are some, and the role may call none of them.
        """
        found = self._by_name().get((schema, name), ())
        if not found and any(
            function.schema == schema and function.name == name and is_callable(self._catalog, function)
            for function in self._catalog.functions
        ):
            closed = not Privileges(self._catalog, self._role).can_use_schema(schema)
            what = f"schema {schema}" if closed else f"function {name}"
            denied = Diagnostics("42501", f"permission denied for {what}")
            raise to_error(denied, anonymous=self._anonymous)
        return found

    def names(self, schema: str) -> Names:
        """Return the names of a schema's functions, to search for similar ones."""
        if schema not in self._names:
            self._names[schema] = Names(name for place, name in self._by_name() if place == schema)
        return self._names[schema]

    def _by_name(self) -> Mapping[tuple[str, str], Sequence[Function]]:
        if self._named is None:
            privileges = Privileges(self._catalog, self._role)
            found: dict[tuple[str, str], list[Function]] = {}
            for function in self._catalog.functions:
                usable = privileges.can_use_schema(function.schema) and privileges.can_execute(function)
                if usable and is_callable(self._catalog, function):
                    found.setdefault((function.schema, function.name), []).append(function)
            self._named = found
        return self._named

    def outcome(self, function: Function) -> Outcome:
        """Return what a function gives."""
        known = self._outcomes.get(function.oid)
        if known is None:
            known = self._outcomes[function.oid] = outcome_of(self._catalog, function)
        return known

    @property
    def producers(self) -> tuple[Producer, ...]:
        """The aggregates that make media types of rows."""
        if self._producers is None:
            handlers = self._catalog.media_handlers
            privileges = Privileges(self._catalog, self._role)
            usable = [each for each in handlers if privileges.can_execute(each)]
            self._producers = tuple(self._producer(each) for each in usable)
        return self._producers

    def _producer(self, handler: MediaHandler) -> Producer:
        content = content_of(self._catalog, self._catalog.types[handler.type])
        return Producer(handler.media_type, qualified(handler), handler.table, content)
