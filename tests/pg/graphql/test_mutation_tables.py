"""Mutations of views, foreign tables, partitioned tables and inheritance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg2
from support.service import Service

if TYPE_CHECKING:
    from support.postgres import Server

SCHEMA = """
create table owner (id serial primary key, name text not null);
create table item (
    id serial primary key, owner_id int references owner, name text not null, price numeric default 1,
        hidden text
);
insert into owner (name) values ('ann'), ('bob');

-- updatable, with one computed column
create view item_view as select id, owner_id, name, price, price * 2 as double_price from item;
comment on view item_view is '@graphql({"primary_key_columns": ["id"], "foreign_keys": [
    {"local_name": "itemViews", "foreign_name": "owner", "local_columns": ["owner_id"],
     "foreign_schema": "public", "foreign_table": "owner", "foreign_columns": ["id"]}]})';
create view cheap as select id, name, price from item where price < 10 with check option;
comment on view cheap is '@graphql({"primary_key_columns": ["id"]})';
-- not updatable
create view per_owner as select owner_id, count(*) as items from item group by owner_id;
comment on view per_owner is '@graphql({"primary_key_columns": ["owner_id"]})';
create materialized view item_copy as select id, name from item;
comment on materialized view item_copy is '@graphql({"primary_key_columns": ["id"]})';
-- updatable by triggers
create view loud as select id, upper(name) as name from item;
comment on view loud is '@graphql({"primary_key_columns": ["id"]})';
create function loud_change() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into item (name) values (lower(new.name)) returning id into new.id;
    elsif tg_op = 'UPDATE' then
        update item set name = lower(new.name) where id = old.id;
    else
        delete from item where id = old.id;
        return old;
    end if;
    return new;
end $$;
create trigger loud_change instead of insert or update or delete on loud for each row execute function
    loud_change();

create table measure (
    id int, day date not null, value float8 default 0, owner_id int references owner, primary key (id, day)
) partition by range (day);
create table measure_23 partition of measure for values from ('2023-01-01') to ('2024-01-01');
create table measure_24 partition of measure for values from ('2024-01-01') to ('2025-01-01');

create table animal (id serial primary key, name text not null);
create table dog (breed text, primary key (id)) inherits (animal);

grant all on all tables in schema public to anon;
grant all on all sequences in schema public to anon;
"""
RESET = "truncate item, measure, animal, dog restart identity"


async def mutate(api: Service, text: str) -> Any:
    return (await api.data(f"mutation {{ r: {text} }}"))["r"]


def offered(api: Service, name: str) -> set[str]:
    fields = api.schema().object_type("Mutation").fields
    names = {
        "insert": f"insertInto{name}Collection",
        "update": f"update{name}Collection",
        "delete": f"deleteFrom{name}Collection",
    }
    return {word for word, field in names.items() if field in fields}


async def test_updatable_view_supports_all_mutations(api: Service) -> None:
    assert offered(api, "item_view") == {"insert", "update", "delete"}
    fields = "affectedCount records { id name price double_price owner { name } }"
    made = await mutate(
        api, f'insertIntoitem_viewCollection(objects: [{{name: "a", owner_id: 2}}]) {{ {fields} }}'
    )
    assert made["affectedCount"] == 1
    row = {"id": 1, "name": "a", "price": "1", "double_price": "2", "owner": {"name": "bob"}}
    assert made["records"] == [row]
    changed = await mutate(
        api,
        'updateitem_viewCollection(set: {price: "2.50", owner_id: 1}, filter: {id: {eq: 1}}) { '
        f"{fields} }}",
    )
    assert changed["records"] == [{**row, "price": "2.50", "double_price": "5.00", "owner": {"name": "ann"}}]
    gone = await mutate(
        api, f'deleteFromitem_viewCollection(filter: {{double_price: {{eq: "5"}}}}) {{ {fields} }}'
    )
    assert gone["records"] == changed["records"]
    assert api.database.execute("select count(*) from item") == [(0,)]


def test_read_only_columns_of_views_are_not_offered(api: Service) -> None:
    for kind in ("Insert", "Update"):
        assert set(api.schema().object_type(f"item_view{kind}Input").fields) == {
            "id",
            "owner_id",
            "name",
            "price",
        }


def test_views_that_cannot_be_changed_offer_nothing(api: Service) -> None:
    assert offered(api, "per_owner") == set()
    assert offered(api, "item_copy") == set()
    assert {"per_ownerCollection", "item_copyCollection"} <= set(api.schema().object_type("Query").fields)


async def test_violated_check_option_of_view_is_an_error(api: Service) -> None:
    response = await api.ask(
        'mutation { insertIntocheapCollection(objects: {name: "a", price: "99"}) { affectedCount } }'
    )
    assert response.error == 'new row violates check option for view "cheap"'
    assert response.errors[0]["extensions"] == {"code": "44000"}
    assert await mutate(
        api, 'insertIntocheapCollection(objects: {name: "a", price: "9"}) { affectedCount }'
    ) == {"affectedCount": 1}
    response = await api.ask('mutation { updatecheapCollection(set: {price: "10"}) { affectedCount } }')
    assert response.errors[0]["extensions"] == {"code": "44000"}


async def test_view_with_triggers_supports_all_mutations(api: Service) -> None:
    assert offered(api, "loud") == {"insert", "update", "delete"}
    made = await mutate(
        api,
        'insertIntoloudCollection(objects: [{name: "A"}, {name: "B"}]) { affectedCount records { id name } }',
    )
    assert made == {"affectedCount": 2, "records": [{"id": 1, "name": "A"}, {"id": 2, "name": "B"}]}
    assert api.database.execute("select string_agg(name, '' order by id) from item") == [("ab",)]
    changed = await mutate(
        api, 'updateloudCollection(set: {name: "C"}, filter: {name: {eq: "A"}}) { records { id name } }'
    )
    assert changed["records"] == [{"id": 1, "name": "C"}]
    gone = await mutate(api, "deleteFromloudCollection(atMost: 2) { affectedCount }")
    assert gone == {"affectedCount": 2}
    assert api.database.execute("select count(*) from item") == [(0,)]


async def test_partitioned_table_can_be_changed(api: Service) -> None:
    assert offered(api, "measure") == {"insert", "update", "delete"}
    made = await mutate(
        api,
        """insertIntomeasureCollection(
            objects: [{id: 1, day: "2023-05-05", owner_id: 1}, {id: 2, day: "2024-05-05", value: 2.5}]
        ) { affectedCount records { id day value owner { name } } }""",
    )
    assert made["records"] == [
        {"id": 1, "day": "2023-05-05", "value": 0, "owner": {"name": "ann"}},
        {"id": 2, "day": "2024-05-05", "value": 2.5, "owner": None},
    ]
    moved = await mutate(
        api,
        """updatemeasureCollection(set: {day: "2024-06-06"}, filter: {id: {eq: 1}})
        { affectedCount records { id day owner { name } } }""",
    )
    assert moved == {
        "affectedCount": 1,
        "records": [{"id": 1, "day": "2024-06-06", "owner": {"name": "ann"}}],
    }
    assert api.database.execute("select count(*) from measure_24") == [(2,)]
    response = await api.ask(
        'mutation { insertIntomeasureCollection(objects: {id: 3, day: "1999-01-01"}) { affectedCount } }'
    )
    assert response.error == 'no partition of relation "measure" found for row'
    assert response.errors[0]["extensions"] == {"code": "23514"}
    gone = await mutate(api, "deleteFrommeasureCollection(atMost: 5) { affectedCount }")
    assert gone == {"affectedCount": 2}


async def test_partition_can_be_changed(api: Service) -> None:
    made = await mutate(
        api, 'insertIntomeasure_23Collection(objects: {id: 1, day: "2023-05-05"}) { records { id day } }'
    )
    assert made["records"] == [{"id": 1, "day": "2023-05-05"}]
    response = await api.ask(
        'mutation { updatemeasure_23Collection(set: {day: "2024-05-05"}) { affectedCount } }'
    )
    assert response.errors[0]["extensions"] == {"code": "23514"}
    assert [row["id"] for row in await api.rows("measure")] == [1]


async def test_mutations_of_a_parent_table_include_child_tables(api: Service) -> None:
    """PostgreSQL's UPDATE and DELETE include child tables unless they use ONLY."""
    await mutate(api, 'insertIntodogCollection(objects: {name: "rex", breed: "b"}) { affectedCount }')
    await mutate(api, 'insertIntoanimalCollection(objects: {name: "tom"}) { affectedCount }')
    changed = await mutate(
        api, 'updateanimalCollection(set: {name: "x"}, atMost: 2) { affectedCount records { id name } }'
    )
    assert changed["affectedCount"] == 2
    assert api.database.execute("select name, breed from dog") == [("x", "b")]
    gone = await mutate(api, "deleteFromanimalCollection(atMost: 2) { affectedCount }")
    assert gone == {"affectedCount": 2}


async def test_foreign_table_can_be_changed(api: Service, server: Server) -> None:
    server.require("postgres_fdw")
    api.database.execute("create extension postgres_fdw")
    parameters = psycopg2.extensions.parse_dsn(api.database.admin_uri)
    await api.execute(f"""
        create server far foreign data wrapper postgres_fdw
            options (host '{parameters["host"]}', port '{parameters["port"]}', dbname
            '{parameters["dbname"]}');
        create user mapping for public server far options (user 'postgres', password_required 'false');
        create foreign table far_item (id int not null, name text not null, price numeric default 7)
            server far options (schema_name 'public', table_name 'item');
        comment on foreign table far_item is '@graphql({{"primary_key_columns": ["id"]}})';
        grant all on far_item to anon;
    """)
    assert offered(api, "far_item") == {"insert", "update", "delete"}
    made = await mutate(
        api,
        'insertIntofar_itemCollection(objects: [{id: 5, name: "far"}]) { affectedCount records { id name '
        "price } }",
    )
    assert made == {"affectedCount": 1, "records": [{"id": 5, "name": "far", "price": "7"}]}
    changed = await mutate(
        api, 'updatefar_itemCollection(set: {name: "near"}, filter: {id: {eq: 5}}) { records { id name } }'
    )
    assert changed["records"] == [{"id": 5, "name": "near"}]
    response = await api.ask("mutation { updatefar_itemCollection(set: {id: null}) { affectedCount } }")
    assert response.errors[0]["extensions"] == {"code": "23502"}
    gone = await mutate(api, "deleteFromfar_itemCollection(filter: {id: {eq: 5}}) { affectedCount }")
    assert gone == {"affectedCount": 1}
    # The foreign server's connection would prevent dropping the test's database.
    await api.execute("drop extension postgres_fdw cascade")
