"""Webhooks of the demo: an organization and project with the token that the banner shows."""

from __future__ import annotations

from dataapi.database.script import complete, opened
from dataapi.webhooks.model import Permission
from dataapi.webhooks.secrets import Cipher, new_key
from dataapi.webhooks.store import Store, make_store
from dataapi.webhooks.store.directory import new_token
from dataapi.webhooks.store.migrations import migrate

__all__ = ["new_key", "new_token", "register"]


def register(uri: str, organization: str, ref: str, token: str) -> None:
    """Register an organization with a project and a token with all permissions, unless they exist. Blocks.

    :raises ScriptError: the database cannot be used.
    """
    with opened(uri) as database:
        complete(migrate(database))
        complete(_register(make_store(database, Cipher(()), 14), organization, ref, token))


async def _register(store: Store, organization: str, ref: str, token: str) -> None:
    directory = store.directory
    await directory.create_organization(organization, early_access=True)
    await directory.create_project(ref, organization)
    if await directory.access(token) is None:
        await directory.create_token(token, organization, Permission, None)
