"""A webhooks store in a separate database, with an organization and a project."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dataapi.database.script import complete, opened
from dataapi.webhooks.model import (
    AttemptOutcome,
    DueWork,
    Endpoint,
    FinishedAttempt,
    NewEndpoint,
    NewEvent,
    Scope,
)
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import Store, make_store
from dataapi.webhooks.store.migrations import migrate

if TYPE_CHECKING:
    from uuid import UUID

    from dataapi.webhooks.store.statements import SqlRunner
    from support.postgres import Database, Server

KEY = base64.b64encode(bytes(range(32))).decode()
REF = "abcdefghijklmnopqrst"
ACME = Scope("acme")
PROJECT = Scope("acme", REF)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PAUSED = "v1.project.paused"
MEMBER = {
    "user_id": "0f6d7c7e-5d0a-4f0b-9a53-2b1f6f0e8c44",
    "primary_email": "ada@example.com",
    "role": {"name": "Owner", "projects": None},
}
"""The object ``member`` of a valid payload of ``v1.organization.member.added``."""


def allow_migrations(database: Database) -> None:
    """Create a schema ``webhooks`` owned by the login role, as an administrator would."""
    database.execute("create schema webhooks authorization authenticator")


async def migrated(database: Database, fetches: SqlRunner, *, retention_days: int = 14) -> Store:
    """Migrate a database unless it is a ``migrated_copy``, and return its store.

    The database contains the organization acme with early access, and its project.
    """
    store = make_store(fetches, Cipher([KEY]), retention_days)
    if await fetches.fetch("select pg_catalog.to_regnamespace('webhooks') is null") == [(True,)]:
        allow_migrations(database)
        await migrate(fetches)
        await store.directory.create_organization(ACME.organization, early_access=True)
        await store.directory.create_project(REF, ACME.organization)
    return store


def migrated_copy(server: Server) -> Database:
    """Create a migrated database as a copy. Copying takes a fifth of the time of migrating."""

    def fill(database: Database) -> None:
        with opened(database.direct_uri) as fetches:
            complete(migrated(database, fetches))

    return server.create_copy("migrated", fill)


async def add_endpoint(store: Store, scope: Scope = ACME, **named: Any) -> Endpoint:
    """Add an endpoint that by default receives every event."""
    given = {"url": "https://receiver.example/", "event_types": ("*",), "signing_secret": SECRET, **named}
    return await store.endpoints.create(scope, NewEndpoint(**given))


async def publish(store: Store, scope: Scope = PROJECT, event_type: str = PAUSED, **payload: Any) -> UUID:
    """Publish an event with a new idempotency key."""
    return await store.publisher.publish(NewEvent(event_type, scope, payload, str(uuid4())))


async def claim(store: Store, maximum: int = 100, lease: float = 30.0, **named: Any) -> tuple[DueWork, ...]:
    return (await store.queue.claim(maximum, lease, **{"per_endpoint": maximum, **named})).work


def made_at(identifier: UUID) -> datetime:
    """Return the creation time that a version 7 UUID contains (RFC 9562)."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=identifier.int >> 80)


def success(work: DueWork, **named: Any) -> FinishedAttempt:
    """Return a successful attempt."""
    return FinishedAttempt(work.claim, AttemptOutcome(True, datetime.now(UTC), 12, 200, **named))


def failure(work: DueWork, retry_in: float | None = None, **named: Any) -> FinishedAttempt:
    """Return an attempt that failed without a response, with or without a retry."""
    return FinishedAttempt(
        work.claim, AttemptOutcome(False, datetime.now(UTC), 12, **{"error": "timeout", **named}), retry_in
    )
