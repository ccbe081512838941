"""Databases with settings and names that break careless SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

COLUMNS = ", ".join(f"t{number} text" for number in range(1, 40))
NAMES = f"""
create table item (id int primary key, {COLUMNS});
insert into item (id, t1, t3) values (1, 'one', 'three');
create table child (id int primary key, t1 text, t2 text, t3 text, t4 text, item_id int references item);
insert into child values (1, 'a', 'b', 'c', 'd', 1);
create function _label(item) returns text stable language sql as $$ select $1.t1 || $1.id $$;
create function parents(child) returns setof item stable rows 1 language sql as
    $$ select * from item where id = $1.item_id $$;
create function items(child) returns setof item stable language sql as
    $$ select * from item where id = $1.item_id $$;
grant all on all tables in schema public to anon;
"""
CHILD = """id t1 t2 t3 t4 item { t1 label t3 } parents { t2 t3 label }
    items { pageInfo { hasNextPage endCursor } edges { cursor node { t3 t4 t5 label } } }"""


@pytest.fixture(scope="module")
def named(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(NAMES)) as service:
        yield service


async def test_columns_may_have_the_names_of_our_aliases(named: Service) -> None:
    data = await named.data(f"{{ childCollection {{ edges {{ node {{ {CHILD} }} }} }} }}")
    [row] = nodes(data["childCollection"])
    assert row["item"] == {"t1": "one", "label": "one1", "t3": "three"}
    assert row["parents"] == {"t2": None, "t3": "three", "label": "one1"}
    assert nodes(row["items"]) == [{"t3": "three", "t4": None, "t5": None, "label": "one1"}]


async def test_columns_of_changed_rows_may_have_the_names_of_our_aliases(named: Service) -> None:
    insert = f'insertIntochildCollection(objects: [{{id: 2, t1: "x"}}]) {{ records {{ {CHILD} }} }}'
    [row] = (await named.data(f"mutation {{ {insert} }}"))["insertIntochildCollection"]["records"]
    assert (row["t1"], row["t4"], row["item"]) == ("x", None, None)
    delete = "deleteFromchildCollection(filter: {id: {eq: 2}}) { records { t1 t2 t3 } }"
    result = await named.data(f"mutation {{ {delete} }}")
    assert result["deleteFromchildCollection"]["records"] == [{"t1": "x", "t2": None, "t3": None}]


@pytest.fixture
def configured(server: Server, reactor: Any, request: pytest.FixtureRequest) -> Iterator[Service]:
    """Serve a database in which the role ``anon`` has one setting."""
    database = server.create_database(
        """create table item (id int primary key, name text);
        insert into item values (1, 'Zoë');
        grant all on item to anon;"""
    )
    database.execute(f'alter role anon in database "{database.name}" set {request.param}')
    with serving(reactor, database) as service:
        yield service


@pytest.mark.parametrize(
    "configured",
    [
        "client_encoding to 'LATIN1'",
        "standard_conforming_strings to off",
        "role to 'service_role'",
        "session_authorization to 'postgres'",
        "transaction_read_only to off",
        "default_transaction_read_only to on",
        "session_preload_libraries to 'somewhere'",
        "log_statement to 'none'",
        "quote_all_identifiers to on",
        "search_path to pg_catalog",
        "\"app.name\" to 'x'",
    ],
    indirect=True,
)
async def test_settings_of_a_role_do_not_break_its_requests(configured: Service) -> None:
    assert await configured.rows("item", "id name") == [{"id": 1, "name": "Zoë"}]
    query = (
        "mutation($n: String) { insertIntoitemCollection(objects: [{id: 2, name: $n}]) { records { name } } }"
    )
    name = "a\\b'c\"ü"
    result = await configured.data(query, {"n": name})
    assert result["insertIntoitemCollection"]["records"] == [{"name": name}]
