"""Problems with the roles that a project's requests run as."""

from __future__ import annotations

from collections.abc import Collection

from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.catalog.model import Catalog
from dataapi.settings import Project


def roles_of_requests(project: Project) -> list[str]:
    names = dict.fromkeys((project.db_anon_role, SERVICE_ROLE if project.secret_keys else ""))
    return list(filter(None, names))


def role_faults(project: Project, catalog: Catalog, existing: Collection[str] | None = None) -> list[str]:
    """Return the problems with the roles of requests. ``existing`` are the database's roles, if known."""
    faults = []
    for name in roles_of_requests(project):
        role = catalog.roles.get(name)
        if role is None and existing is not None and name not in existing:
            faults.append(f"requests run as {name}, but there is no such role")
        elif role is None:
            faults.append(
                f"requests run as {name}, but the login role of db-uri is not a member of that role"
            )
        elif role.forbidden_kind is not None:
            faults.append(f"requests run as {name}, which is {role.forbidden_kind}: they are rejected")
    return faults
