"""What is common to the tests of Python client libraries: calls, and two libraries that make them."""

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
"""Puts the first rows back."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as a program makes it, and what the library's documentation promises of it.

    :ivar build: makes the request of a client; ``execute`` is called on what it returns.
    :ivar data: the response's ``data``.
    :ivar count: the response's ``count``.
    :ivar error: the members of the ``APIError`` that is raised instead.
    :ivar leaves: SQL that shows what the call changed, and its rows.
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
    """Return rows that have an id only."""
    return [{"id": number} for number in numbers]


def names(*found: str | None) -> list[dict[str, str | None]]:
    """Return rows that have a name only."""
    return [{"name": name} for name in found]


def titles(*found: str) -> list[dict[str, str]]:
    """Return rows that have a title only."""
    return [{"title": title} for title in found]


def error(code: str, message: str, details: Any = None, hint: str | None = None) -> dict[str, Any]:
    """Return the members of an error."""
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
    """Make a call with the blocking client of ``supabase``."""
    with httpx.Client(verify=False) as session:
        client = create_client(url, KEY, ClientOptions(httpx_client=session, headers=headers))
        return build(client).execute()


LIBRARIES = {"postgrest": with_postgrest, "supabase": with_supabase}
"""How each library makes a call."""


async def make(
    reactor: Any, service: Service, library: str, build: Callable[[Any], Any], **headers: str
) -> Any:
    """Make a call in a thread, as these libraries have loops of their own; return the response.

    Raises what the library raises.
    """
    try:
        return await threads.deferToThread(LIBRARIES[library], service.url, build, **headers)
    finally:
        # After an error the pool looks at its connection once more.
        while not service.pool.figures().idle:
            await task.deferLater(reactor, 0.001)


async def check(reactor: Any, service: Service, call: Call) -> None:
    """Make a call with ``postgrest``, which ``supabase`` uses, and compare its result with the promise."""
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
