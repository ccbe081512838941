"""GeoJSON created by PostGIS, if installed. ``test_media`` tests GeoJSON on any server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

GEOJSON = "application/geo+json"
SHOWN = {"accept": GEOJSON, "prefer": "return=representation"}

SCHEMA = """
create schema gis;
create extension postgis schema gis;
grant usage on schema gis to anon;
set search_path = public, gis;

create table harbour (id int primary key, name text, place geometry(point, 4326));
insert into harbour values
    (1, 'Aalesund', 'srid=4326;point(6.15 62.47)'), (2, 'Bergen', 'srid=4326;point(5.32 60.39)');

create table quay (
    id int primary key, harbour_id int references harbour, bollard geometry(point, 4326),
    edge geometry(linestring, 4326));
insert into quay values (7, 1, 'srid=4326;point(6.1 62.4)', 'srid=4326;linestring(6 62, 7 63)');

create table crane (id int primary key);
insert into crane values (1);

create function harbours_north_of(latitude float8) returns setof harbour stable
    language sql as $$ select * from harbour where gis.st_y(place) > latitude $$;

grant all on all tables in schema public to anon;
"""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve tables with geometries. The extension's schema is not exposed."""
    server.require("postgis")
    database = server.create_database(SCHEMA)
    with serving(reactor, database, db_extra_search_path=("gis",)) as service:
        yield service


def feature(geometry: str, *coordinates: Any, **properties: Any) -> dict[str, Any]:
    shape = {"type": geometry, "coordinates": list(coordinates)}
    return {"type": "Feature", "geometry": shape, "properties": properties}


AALESUND = feature("Point", 6.15, 62.47, id=1, name="Aalesund")
BERGEN = feature("Point", 5.32, 60.39, id=2, name="Bergen")


async def features(service: Service, target: str) -> list[Any]:
    response = await service.rest("GET", target, headers={"accept": GEOJSON})
    assert (response.status, response.headers["content-type"]) == (200, f"{GEOJSON}; charset=utf-8")
    assert response.body["type"] == "FeatureCollection"
    collected: list[Any] = response.body["features"]
    return collected


async def test_rows_become_features_with_other_columns_as_properties(service: Service) -> None:
    assert await features(service, "harbour?order=id") == [AALESUND, BERGEN]
    assert await features(service, "rpc/harbours_north_of?latitude=61") == [AALESUND]
    assert await features(service, "harbour?id=gt.2") == []


async def test_select_determines_the_properties_and_the_geometry(service: Service) -> None:
    assert await features(service, "harbour?select=id,place&id=eq.2") == [feature("Point", 5.32, 60.39, id=2)]
    assert await features(service, "quay?select=id,bollard") == [feature("Point", 6.1, 62.4, id=7)]
    assert await features(service, "quay?select=id,edge") == [feature("LineString", [6, 62], [7, 63], id=7)]
    [embedding] = await features(service, "harbour?select=place,quay(id,bollard)&id=eq.1")
    [quay] = embedding["properties"]["quay"]
    assert (quay["id"], quay["bollard"]["coordinates"]) == (7, [6.1, 62.4])


async def test_rows_without_a_geometry_are_rejected(service: Service) -> None:
    response = await service.rest("GET", "crane", headers={"accept": GEOJSON})
    assert (response.status, response.body["code"]) == (400, "22023")
    assert response.body["message"] == "geometry column is missing"


async def test_changed_rows_are_returned_as_features(service: Service) -> None:
    moved = "srid=4326;point(10.4 63.4)"
    body = {"id": 3, "name": "Trondheim", "place": moved}
    made = feature("Point", 10.4, 63.4, id=3, name="Trondheim")
    named = feature("Point", 10.4, 63.4, id=3, name="Nidaros")
    steps = [
        ("POST", "harbour", body, 201, made),
        ("PATCH", "harbour?id=eq.3", {"name": "Nidaros"}, 200, named),
        ("PUT", "harbour?id=eq.3", body, 200, made),
        ("DELETE", "harbour?id=eq.3", None, 200, made),
    ]
    for method, target, sent, status, expected in steps:
        response = await service.rest(method, target, sent, headers=SHOWN)
        assert (response.status, response.body["features"]) == (status, [expected]), method


async def test_geometries_are_objects_in_plain_json(service: Service) -> None:
    """Unlike geometries of GeoJSON features, the objects include the coordinate reference system."""
    [row] = (await service.rest("GET", "harbour?select=place&id=eq.1")).body
    crs = {"type": "name", "properties": {"name": "EPSG:4326"}}
    assert row["place"] == {"type": "Point", "crs": crs, "coordinates": [6.15, 62.47]}
