"""Films selected with a REST query string, and with SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.service import Service


async def ids(service: Service, query: str) -> list[int]:
    return [row["id"] for row in await service.read(f"film?select=id&order=id&{query}")]


def ids_where(service: Service, condition: str) -> list[int]:
    return [row[0] for row in service.database.execute(f"select id from film where {condition} order by id")]
