"""What one role may do with what a catalog holds, decided as PostgreSQL decides it; pure.

Answers are worked out when first asked for, so that a large database costs a role only what it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dataapi.catalog.media_types import MediaHandler
from dataapi.catalog.model import Acl, Catalog, Function, Table, TypeKind

_READ_ALL = frozenset({"SELECT"})
_WRITE_ALL = frozenset({"INSERT", "UPDATE", "DELETE"})
_COLUMN_PRIVILEGES = frozenset({"SELECT", "INSERT", "UPDATE", "REFERENCES"})


@dataclass(frozen=True, slots=True)
class _Grants:
    """A role's privileges on one table: on the whole of it, and on single columns."""

    whole: frozenset[str]
    columns: tuple[tuple[str, frozenset[str]], ...]


class Privileges:
    """One role's view of a catalog.

    Table, column and function answers leave the schema aside: PostgreSQL asks for USAGE of it
    besides, which is ``can_use_schema``.

    :raises LookupError: the role is not one that the login role may assume.
    """

    def __init__(self, catalog: Catalog, role_name: str) -> None:
        role = catalog.roles.get(role_name)
        if role is None:
            raise LookupError(f"The login role may not assume the role {role_name!r}.")
        self._catalog = catalog
        self._role = role
        self._reads_all = catalog.read_all in role.grantees if catalog.read_all else False
        self._writes_all = catalog.write_all in role.grantees if catalog.write_all else False
        self._tables: dict[int, _Grants] = {}
        self._columns: dict[tuple[int, str], frozenset[str]] = {}

    @property
    def role(self) -> str:
        """The role's name."""
        return self._role.name

    def can_use_schema(self, name: str) -> bool:
        """Whether the role may look into the schema; False for one that is not exposed."""
        schema = self._catalog.schemas.get(name)
        return schema is not None and (
            self._reads_all or self._writes_all or self._holds(schema.acl, "USAGE")
        )

    def can(self, table: Table, privilege: str) -> bool:
        """Whether the role has a privilege such as ``SELECT`` on the table or at least one of its columns."""
        grants = self._grants(table)
        return privilege in grants.whole or any(privilege in words for _, words in grants.columns)

    def can_whole(self, table: Table, privilege: str) -> bool:
        """Whether the role has the privilege on the table itself, as ``DELETE`` needs."""
        return privilege in self._grants(table).whole

    def columns(self, table: Table, privilege: str) -> frozenset[str]:
        """Return the names of the columns that the role has the privilege on.

        :param privilege: ``SELECT``, ``INSERT``, ``UPDATE`` or ``REFERENCES``; nothing for others.
        """
        known = self._columns.get((table.oid, privilege))
        if known is None:
            grants = self._grants(table)
            if privilege in grants.whole & _COLUMN_PRIVILEGES:
                known = frozenset(column.name for column in table.columns)
            else:
                known = frozenset(name for name, words in grants.columns if privilege in words)
            self._columns[table.oid, privilege] = known
        return known

    def can_execute(self, function: Function | MediaHandler) -> bool:
        """Whether the role may call the function or aggregate."""
        return self._holds(function.acl, "EXECUTE")

    def can_use_type(self, oid: int) -> bool:
        """Whether the role may use the type; an array is as its elements are."""
        type_ = self._catalog.types[oid]
        if type_.kind is TypeKind.ARRAY:
            return self.can_use_type(type_.element)
        return self._holds(type_.acl, "USAGE")

    def _holds(self, acl: Acl, privilege: str) -> bool:
        if self._role.superuser:
            return True
        grantees = self._role.grantees
        return any(privilege in words for grantee, words in acl if grantee in grantees)

    def _grants(self, table: Table) -> _Grants:
        known = self._tables.get(table.oid)
        if known is None:
            known = self._tables[table.oid] = self._find_grants(table)
        return known

    def _find_grants(self, table: Table) -> _Grants:
        if self._role.superuser:
            return _Grants(_COLUMN_PRIVILEGES | {"DELETE", "TRUNCATE", "TRIGGER", "MAINTAIN"}, ())
        whole = self._held(table.acl)
        if self._reads_all:
            whole |= _READ_ALL
        if self._writes_all:
            whole |= _WRITE_ALL
        columns = [(column.name, self._held(column.acl)) for column in table.columns if column.acl]
        return _Grants(whole, tuple(columns))

    def _held(self, acl: Acl) -> frozenset[str]:
        grantees = self._role.grantees
        return frozenset().union(*(words for grantee, words in acl if grantee in grantees))


def executable_by_some(catalog: Catalog) -> Callable[[Function], bool]:
    """Return a test whether some role that requests run as may call a function."""
    roles = [role for role in catalog.roles.values() if not role.login]
    if any(role.superuser for role in roles):
        return lambda _function: True
    grantees: frozenset[int] = frozenset().union(*(role.grantees for role in roles))
    return lambda function: any("EXECUTE" in words and grantee in grantees for grantee, words in function.acl)
