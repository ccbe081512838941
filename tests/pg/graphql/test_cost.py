"""The cost of an operation is the number of rows that it may touch. It is limited before execution."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

LIMIT = 1000
SCHEMA = """
create table author (id int primary key, name text);
create table book (id int primary key, author_id int references author);
comment on table author is '@graphql({"max_rows": 100, "totalCount": {"enabled": true}})';
comment on table book is '@graphql({"max_rows": 50})';
create function authors() returns setof author stable language sql as 'select * from author';
create function make_authors() returns setof author language sql as 'select * from author';
insert into author select n, 'a' from generate_series(1, 5) n;
insert into book select n, 1 + n % 5 from generate_series(1, 20) n;
grant all on author, book to anon;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA), graphql_max_cost=LIMIT) as service:
        yield service


PAGE = "edges { node { id } }"


@pytest.mark.parametrize(
    ("operation", "cost"),
    [
        # A page costs its size, or the table's limit if the size is missing or larger.
        (f"{{ authorCollection(first: 7) {{ {PAGE} }} }}", 7),
        (f"{{ authorCollection {{ {PAGE} }} }}", 100),
        (f"{{ authorCollection(first: 5000) {{ {PAGE} }} }}", 100),
        (f"{{ authorCollection(last: 7) {{ {PAGE} }} }}", 7),
        (f"{{ authorCollection(first: 0) {{ {PAGE} }} }}", 0),
        # The costs of nested pages are multiplied, those of sibling fields are added.
        (f"{{ authorCollection(first: 10) {{ edges {{ node {{ bookCollection(first: 3) {{ {PAGE} }} }} }} "
         "} }", 40),
        (f"{{ authorCollection(first: 10) {{ edges {{ node {{ bookCollection {{ {PAGE} }} }} }} }} }}", 510),
        (f"{{ bookCollection(first: 10) {{ edges {{ node {{ author {{ bookCollection(first: 2) {{ {PAGE} "
         "} } } } } }", 40),
        (f"{{ a: authorCollection(first: 7) {{ {PAGE} }} b: bookCollection(first: 8) {{ {PAGE} }} }}", 15),
        ("{ authorByPk(id: 1) { id } }", 1),
        (f"{{ authorByPk(id: 1) {{ bookCollection(first: 4) {{ {PAGE} }} }} }}", 5),
        (f"{{ authors(first: 6) {{ {PAGE} }} }}", 6),
        ("{ __typename }", 0),
        # Skipped fields cost nothing, and merged fields count once.
        (f"{{ authorCollection(first: 9) @skip(if: true) {{ {PAGE} }} heartbeat }}", 0),
        ("{ authorCollection(first: 9) { edges { node { id } } } authorCollection(first: 9) { edges { node "
         "{ name } } } }", 9),
        # An update or delete costs its atMost, an insert the number of its objects.
        ("mutation { updateauthorCollection(set: {name: \"b\"}, filter: {id: {eq: 1}}) { affectedCount } "
         "}", 1),
        ("mutation { updateauthorCollection(set: {name: \"b\"}, atMost: 30) { affectedCount } }", 30),
        ("mutation { updateauthorCollection(set: {name: \"b\"}, atMost: 5) { records { "
         f"bookCollection(first: 3) {{ {PAGE} }} }} }} }}", 20),
        ("mutation { deleteFrombookCollection(filter: {id: {eq: 99}}, atMost: 12) { affectedCount } }", 12),
        ("mutation { insertIntobookCollection(objects: [{id: 101}, {id: 102}, {id: 103}]) { records { "
         "author { id } } } }", 6),
        (f"mutation {{ make_authors(first: 6) {{ {PAGE} }} }}", 6),
    ],
)  # fmt: skip
async def test_operation_costs_the_rows_that_it_may_touch(api: Service, operation: str, cost: int) -> None:
    assert await measured_cost(api, operation) == cost


async def measured_cost(api: Service, query: str, variables: dict[str, Any] | None = None) -> int:
    api.database.execute("delete from book where id > 100")
    body = {"query": query, "variables": variables, "extensions": {"cost": True}}
    response = await api.send(json.dumps(body).encode())
    assert response.body["extensions"]["cost"]["limit"] == LIMIT
    assert "errors" not in response.body, response.body
    cost: int = response.body["extensions"]["cost"]["rows"]
    return cost


async def test_variables_decide_the_cost(api: Service) -> None:
    query = f"""query($n: Int, $m: Int = 2) {{
        authorCollection(first: $n) {{ edges {{ node {{ bookCollection(first: $m) {{ {PAGE} }} }} }} }} }}"""
    costs = [
        await measured_cost(api, query, given)
        for given in ({"n": 2}, {"n": 2, "m": 9}, {"n": 50}, {"m": 1}, {"n": 2})
    ]
    assert costs == [6, 20, 150, 200, 6]
    query = "mutation($o: [bookInsertInput!]!) { insertIntobookCollection(objects: $o) { affectedCount } }"
    for count in (1, 2, 3, 40):
        assert await measured_cost(api, query, {"o": [{"id": 101 + n} for n in range(count)]}) == count
    query = (
        "mutation($n: Int!) { deleteFrombookCollection(filter: {id: {gt: 100}}, atMost: $n) { "
        "affectedCount } }"
    )
    assert [await measured_cost(api, query, {"n": n}) for n in (1, 700, 2)] == [1, 700, 2]


@pytest.mark.parametrize(
    ("query", "variables", "cost"),
    [
        ("query($n: Int) { authorCollection(first: $n) { edges { node { bookCollection { edges { node { id "
         "} } } } } } }",
         {"n": 20}, 1020),
        ("mutation { deleteFrombookCollection(atMost: 1001) { affectedCount } }", None, 1001),
        ("mutation($n: Int!) { updateauthorCollection(set: {name: \"x\"}, atMost: $n) { affectedCount } }",
         {"n": 2**31 - 1}, 2 * 8192 // 32 + 1000),
        ("mutation { a: deleteFrombookCollection(atMost: 600) { affectedCount } "
         "b: deleteFromauthorCollection(atMost: 600) { affectedCount } }", None, 1200),
        ("mutation($o: [bookInsertInput!]!) { insertIntobookCollection(objects: $o) { affectedCount } }",
         {"o": [{"id": 1000 + n} for n in range(1001)]}, 1001),
        ("mutation($o: [bookInsertInput!]!) { insertIntobookCollection(objects: $o) { records { author { "
         "id } } } }",
         {"o": [{"id": 1000 + n} for n in range(501)]}, 1002),
    ],
)  # fmt: skip
async def test_too_costly_operations_are_rejected_before_they_run(
    api: Service, query: str, variables: dict[str, Any] | None, cost: int
) -> None:
    response = await api.ask(query, variables)
    assert response.error == (
        f"The operation may touch {cost} rows, more than the {LIMIT} allowed: "
        "request smaller pages with `first`, or nest fewer collections."
    )
    assert "data" not in response.body
    assert response.messages == ()
    assert api.database.execute("select (select count(*) from author), (select count(*) from book)") == [
        (5, 20)
    ]


async def test_cached_plan_is_checked_against_the_limit(api: Service) -> None:
    query = (
        "mutation($n: Int!) { deleteFrombookCollection(filter: {id: {eq: 0}}, atMost: $n) { affectedCount } }"
    )
    for size, refused in ((1, False), (LIMIT + 1, True), (LIMIT, False)):
        assert ("errors" in (await api.ask(query, {"n": size})).body) is refused


# ------------------------------------------------------------ row estimates


def nested(levels: int, name: str) -> str:
    """Return an operation with nested collections."""
    inner = "id"
    for _ in range(levels):
        inner = f"{name} {{ edges {{ node {{ id {inner} }} }} }}"
    return f"{{ {inner} }}"


ANALYZED = """
create table artist (id int primary key, name text);
create table album (id int primary key, artist_id int references artist, twin_id int);
create table track (id int primary key, album_id int references album);
create table fresh (id int primary key, next_id int references fresh, note text);
create index on fresh (next_id);
create table growing (id int primary key);
create table measured (id int, day int, primary key (id, day)) partition by range (day);
create table measured_1 partition of measured for values from (0) to (10);
create table measured_2 partition of measured for values from (10) to (20);
create table mixed (id int, day int) partition by range (day);
create table mixed_1 partition of mixed for values from (0) to (10);
create table mixed_2 partition of mixed for values from (10) to (20);
comment on table mixed is '@graphql({"primary_key_columns": ["id"]})';
create view listed as select id from artist;
create materialized view counted as select id from artist;
comment on view listed is '@graphql({"primary_key_columns": ["id"]})';
comment on materialized view counted is '@graphql({"primary_key_columns": ["id"]})';
comment on table album is
    '@graphql({"foreign_keys": [{"local_columns": ["twin_id"], "foreign_name": "twin",
        "foreign_schema": "public", "foreign_table": "album", "foreign_columns": ["twin_id"],
        "local_name": "twins"}]})';
comment on schema public is '@graphql({"max_rows": 100000})';
create function some_artists() returns setof artist stable language sql as 'select * from artist';
insert into artist select n, 'a' from generate_series(1, 50) n;
insert into album select n, 1 + n % 50 from generate_series(1, 200) n;
insert into track select n, 1 + n % 200 from generate_series(1, 3000) n;
insert into measured select n, n % 20 from generate_series(1, 400) n;
insert into fresh select n, nullif(n - 1, 0), 'a' from generate_series(1, 3) n;
insert into mixed select n, 1 from generate_series(1, 40) n;
refresh materialized view counted;
grant all on all tables in schema public to anon;
analyze artist, album, track, measured_1, measured_2, mixed_1, counted;
"""
ARTISTS, ALBUMS, TRACKS, FRESH = (2 * rows + 1000 for rows in (50, 200, 3000, 8192 // 32))


@pytest.fixture(scope="module")
def analyzed(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(ANALYZED), graphql_max_depth=50) as service:
        yield service


@pytest.mark.parametrize(
    ("operation", "cost"),
    [
        (f"{{ artistCollection {{ {PAGE} }} }}", ARTISTS),
        (f"{{ artistCollection(first: 7) {{ {PAGE} }} }}", 7),
        # Each album belongs to one artist, so the total is at most all albums.
        ("{ artistCollection { edges { node { albumCollection { edges { node { trackCollection { "
         f"{PAGE} }} }} }} }} }} }} }} }}", ARTISTS + ALBUMS + TRACKS),
        ("{ artistCollection { edges { node { albumCollection(first: 2) { edges { node { trackCollection { "
         f"{PAGE} }} }} }} }} }} }} }} }}", ARTISTS + min(2 * ARTISTS, ALBUMS) + TRACKS),
        # All tracks may belong to one album, so each of the 10 tracks may have all of them as siblings.
        (f"{{ trackCollection(first: 10) {{ edges {{ node {{ album {{ trackCollection {{ {PAGE} }} }} }} }} "
         "} }", 10 + 10 + 10 * TRACKS),
        # Keys that a directive declares need not be unique.
        (f"{{ albumCollection(first: 10) {{ edges {{ node {{ twins {{ {PAGE} }} }} }} }} }}",
         10 + 10 * ALBUMS),
        # Functions and views have no estimates.
        (f"{{ some_artists {{ {PAGE} }} }}", 100_000),
        (f"{{ listedCollection {{ {PAGE} }} }}", 100_000),
        # A table without statistics is estimated by the rows that fit into its single disk page.
        (f"{{ freshCollection {{ {PAGE} }} }}", FRESH),
        (nested(4, "freshCollection"), 4 * FRESH),
        # A partitioned table has the rows of its partitions. One partition is empty.
        (f"{{ mixedCollection {{ {PAGE} }} }}", 2 * 40 + 1000),
        (f"{{ countedCollection {{ {PAGE} }} }}", ARTISTS),
        (f"{{ measuredCollection {{ {PAGE} }} }}", 2 * 400 + 1000),
        ("mutation { deleteFromtrackCollection(filter: {id: {eq: 0}}, atMost: 9999) { affectedCount } }",
         TRACKS),
    ],
)  # fmt: skip
async def test_cost_is_limited_by_the_estimated_table_sizes(
    analyzed: Service, operation: str, cost: int
) -> None:
    """Estimates are doubled and increased by 1,000, because tables may grow before the next reload."""
    body = {"query": operation, "extensions": {"cost": True}}
    response = await analyzed.send(json.dumps(body).encode())
    assert response.body["extensions"]["cost"]["rows"] == cost, response.body


async def test_estimates_are_refreshed_with_the_catalog(analyzed: Service) -> None:
    body = json.dumps(
        {"query": f"{{ growingCollection {{ {PAGE} }} }}", "extensions": {"cost": True}}
    ).encode()
    costs = []
    for rows in (10, 5000):
        await analyzed.execute(
            f"insert into growing select {rows} + n from generate_series(1, {rows}) n; analyze growing"
        )
        costs.append((await analyzed.send(body)).body["extensions"]["cost"]["rows"])
    assert costs == [2 * 10 + 1000, 2 * 5010 + 1000]
