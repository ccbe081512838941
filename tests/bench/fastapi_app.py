"""The REST cases as a Python developer would implement them with FastAPI and asyncpg."""

# FastAPI is installed for the benchmark only.
# mypy: ignore-errors
# ruff: noqa: D101

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hmac import compare_digest
from typing import Annotated, Any

import asyncpg
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel

TRACK = "select t.track_id, t.name from track t where t.track_id = $1"
TRACKS = "select track_id, name, milliseconds, unit_price::float8 from track limit $1"
TRACKS_OF_ALBUMS = """
select t.track_id, t.name, a.title from track t join album a using (album_id) order by t.track_id limit $1
"""
LATEST_TRACKS = TRACKS_OF_ALBUMS.replace("order by t.track_id", "order by t.track_id desc")
ALBUMS = """
select a.title, t.name, t.milliseconds
from (select album_id, title from album limit $1) a left join track t using (album_id)
"""


class Title(BaseModel):
    title: str


class Track(BaseModel):
    track_id: int
    name: str


class TrackOfAlbum(Track):
    album: Title


class PricedTrack(Track):
    milliseconds: int
    unit_price: float


class AlbumTrack(BaseModel):
    name: str
    milliseconds: int


class Album(BaseModel):
    title: str
    track: list[AlbumTrack]


class NewRow(BaseModel):
    name: str


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Connect as the role of anonymous callers."""
    settings = {"role": "anon"}
    async with asyncpg.create_pool(os.environ["URI"], max_size=10, server_settings=settings) as pool:
        app.state.pool = pool
        yield


def check_key(apikey: Annotated[str, Header()]) -> None:
    if not compare_digest(apikey.encode(), os.environ["KEY"].encode()):
        raise HTTPException(401)


app = FastAPI(lifespan=lifespan, dependencies=[Depends(check_key)])


@app.get("/tracks/{track_id}", response_model=list[Track])
async def track(track_id: int) -> Any:
    return [dict(row) for row in await app.state.pool.fetch(TRACK, track_id)]


@app.get("/tracks", response_model=list[PricedTrack])
async def tracks(limit: int) -> Any:
    return [dict(row) for row in await app.state.pool.fetch(TRACKS, limit)]


@app.get("/tracks-of-albums", response_model=list[TrackOfAlbum])
async def tracks_of_albums(limit: int, *, latest: bool = False) -> Any:
    rows = await app.state.pool.fetch(LATEST_TRACKS if latest else TRACKS_OF_ALBUMS, limit)
    return [{"track_id": row[0], "name": row[1], "album": {"title": row[2]}} for row in rows]


@app.get("/albums", response_model=list[Album])
async def albums(limit: int) -> Any:
    found: dict[str, Any] = {}
    for title, name, milliseconds in await app.state.pool.fetch(ALBUMS, limit):
        album = found.setdefault(title, {"title": title, "track": []})
        if name is not None:
            album["track"].append({"name": name, "milliseconds": milliseconds})
    return list(found.values())


@app.post("/rows", status_code=201)
async def add_row(row: NewRow) -> None:
    await app.state.pool.execute("insert into bench_row (name) values ($1)", row.name)


@app.get("/sum")
async def add(a: int, b: int) -> int:
    total: int = await app.state.pool.fetchval("select bench_add($1, $2)", a, b)
    return total
