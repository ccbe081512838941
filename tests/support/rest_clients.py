"""Makes calls with the Python client libraries ``postgrest`` and ``supabase``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
from postgrest import AsyncPostgrestClient
from postgrest.exceptions import APIError
from supabase import ClientOptions, create_client
from support.memory_http import KEY
from twisted.internet import task, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from support.service import Service

RESTORE = "select restore()"
"""Restores the initial rows."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call to a client library, and its documented result.

    :ivar build: builds the request from a client; ``execute`` is called on its result.
    :ivar data: the response's ``data``.
    :ivar count: the response's ``count``.
    :ivar error: the members of the expected ``APIError``.
    :ivar leaves: SQL that reads the rows after the call, and the rows that it must return.
    """

    name: str
    build: Callable[[Any], Any]
    data: Any = None
    count: int | None = None
    error: Mapping[str, Any] | None = None
    leaves: tuple[str, list[tuple[Any, ...]]] | None = None

    def __str__(self) -> str:
        return self.name


def ids(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


def names(*found: str | None) -> list[dict[str, str | None]]:
    return [{"name": name} for name in found]


def titles(*found: str) -> list[dict[str, str]]:
    return [{"title": title} for title in found]


def error(code: str, message: str, details: Any = None, hint: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "details": details, "hint": hint}


def with_postgrest(url: str, build: Callable[[Any], Any], **headers: str) -> Any:
    """Make a call with the asynchronous client of ``postgrest``."""

    async def perform() -> Any:
        async with httpx.AsyncClient(verify=False) as session:
            sent = {"apikey": KEY, **headers}
            client = AsyncPostgrestClient(f"{url}/rest/v1", headers=sent, http_client=session)
            return await build(client).execute()

    return asyncio.run(perform())


def with_supabase(url: str, build: Callable[[Any], Any], **headers: str) -> Any:
    """Make a call with the synchronous client of ``supabase``."""
    with httpx.Client(verify=False) as session:
        client = create_client(url, KEY, ClientOptions(httpx_client=session, headers=headers))
        return build(client).execute()


LIBRARIES = {"postgrest": with_postgrest, "supabase": with_supabase}


async def make(
    reactor: Any, service: Service, library: str, build: Callable[[Any], Any], **headers: str
) -> Any:
    """Make a call in a thread, because the libraries run their own event loops, and return the response.

    Raises the exceptions of the library.
    """
    try:
        return await threads.deferToThread(LIBRARIES[library], service.url, build, **headers)
    finally:
        # After an error, the pool is busy until it has checked its connection.
        while not service.pool.figures().idle:
            await task.deferLater(reactor, 0.001)


async def check(reactor: Any, service: Service, call: Call) -> None:
    """Make a call with ``postgrest``, the base of ``supabase``, and check its result."""
    refusal = response = None
    try:
        response = await make(reactor, service, "postgrest", call.build)
    except APIError as raised:
        refusal = raised.json()
    assert refusal == call.error
    assert getattr(response, "data", response) == call.data
    assert getattr(response, "count", None) == call.count
    if call.leaves is not None:
        statement, rows = call.leaves
        assert service.database.execute(statement) == rows
