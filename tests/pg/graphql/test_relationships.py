"""Relationships from foreign keys and directives (docs/reference/graphql.md, Relationships)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table country (code text primary key, name text);
create table city (
    id int primary key, country_code text not null references country, "twinId" int references city,
    old_country text references country (code)
);
create table employee (id int primary key, boss_id int references employee);
create table email_address (id int primary key, employee_id int unique references employee, address text);
create table badge (employee_id int primary key references employee);
create table room (building int, number int, note text, primary key (building, number));
create table booking (id int primary key, building int, number int, unique (id, building),
    constraint room_of_booking foreign key (building, number) references room (building, number));
create table partial (id int primary key, employee_id int references employee);
create unique index on partial (employee_id) where id > 0;
create table message (
    id int primary key, sender_id int references employee, receiver_id int references employee
);
create view city_list as
    select id, country_code, code_of from city, lateral (select country_code as code_of) x;
comment on view city_list is '@graphql({"primary_key_columns": ["id"], "foreign_keys": [
    {"local_name": "listed", "local_columns": ["country_code"], "foreign_name": "land",
     "foreign_schema": "public", "foreign_table": "country", "foreign_columns": ["code"]},
    {"local_columns": ["id"], "foreign_schema": "public", "foreign_table": "city", "foreign_columns": ["id"]},
    {"local_columns": ["code_of"], "foreign_name": "some", "local_name": "listings",
     "foreign_schema": "public", "foreign_table": "city", "foreign_columns": ["country_code"]}]})';
create table locker (id int primary key, employee_id int references employee);
comment on table locker is '@graphql({"foreign_keys": [{
    "foreign_name": "holder", "local_columns": ["employee_id"],
    "foreign_schema": "public", "foreign_table": "employee", "foreign_columns": ["id"]}]})';
create table secret (id int primary key, employee_id int references employee);
insert into country values ('de', 'Germany'), ('fr', 'France');
insert into city values (1, 'de', null, 'fr'), (2, 'de', 1, null), (3, 'fr', 1, 'de');
insert into employee values (1, null), (2, 1), (3, 1);
insert into email_address values (1, 2, 'two@example.org'), (2, null, 'none@example.org');
insert into badge values (1);
insert into locker values (1, 1);
insert into room values (1, 1, 'a'), (1, 2, 'b');
insert into booking values (1, 1, 2), (2, 1, null), (3, null, null);
insert into message values (1, 1, 2), (2, 2, 1), (3, 1, 3);
grant select on all tables in schema public to anon;
revoke select on secret from anon;
"""


@pytest.fixture(scope="module")
def related(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service


def relations(service: Service, name: str) -> dict[str, str]:
    scalar = {"ID!", "Int", "Int!", "String", "String!"}
    return {key: kind for key, kind in service.fields(name).items() if kind not in scalar}


def test_relationships_follow_the_foreign_keys(related: Service) -> None:
    assert relations(related, "city") == {
        "country": "country",
        "twin": "city",
        "countryBycountry_code": "country",
        "cityCollection": "cityConnection!",
        "city_list": "city_list",
        "listings": "city_listConnection!",
    }
    assert relations(related, "country") == {
        "cityCollection": "cityConnection!",
        "cityCollectionBycountry_code": "cityConnection!",
        "listed": "city_listConnection!",
    }
    assert relations(related, "booking") == {"room": "room"}
    assert relations(related, "room") == {"bookingCollection": "bookingConnection!"}


def test_unique_columns_make_one_to_one(related: Service) -> None:
    assert relations(related, "email_address") == {"employee": "employee"}
    assert relations(related, "badge") == {"employee": "employee"}
    found = relations(related, "employee")
    assert found["email_address"] == "email_address"
    assert found["badge"] == "badge"
    assert found["partialCollection"] == "partialConnection!"
    assert found["employee"] == "employee"
    assert found["employeeCollection"] == "employeeConnection!"


def test_several_keys_between_two_tables_have_distinct_names(related: Service) -> None:
    assert relations(related, "message") == {"employee": "employee", "employeeByreceiver_id": "employee"}
    found = relations(related, "employee")
    assert {"messageCollection", "messageCollectionByreceiver_id"} <= set(found)


def test_relationships_to_hidden_tables_are_omitted(related: Service) -> None:
    assert "secretCollection" not in related.fields("employee")
    assert "secretCollection" not in related.collections()


async def test_every_kind_of_relationship_can_be_queried(related: Service) -> None:
    data = await related.data(
        """{ countryCollection { edges { node { code
                cityCollectionBycountry_code { edges { node { id twin { id countryBycountry_code { code } }
                    cityCollection { edges { node { id } } } country { code } } } }
                cityCollection { edges { node { id } } } } } }
            employeeCollection { edges { node {
                id email_address { address } badge { employee { id } } employee { id }
                employeeCollection { edges { node { id } } } messageCollection { edges { node { id } } }
                messageCollectionByreceiver_id { edges { node { id employee { id } } } } } } }
            email_addressCollection { edges { node { employee { id } } } }
            bookingCollection { edges { node {
                room { note bookingCollection { edges { node { id } } } } } } } }"""
    )
    germany, france = nodes(data["countryCollection"])
    one, two = nodes(germany["cityCollectionBycountry_code"])
    assert one["twin"] is None
    assert two["twin"] == {"id": 1, "countryBycountry_code": {"code": "de"}}
    assert nodes(one["cityCollection"]) == [{"id": 2}, {"id": 3}]
    assert one["country"] == {"code": "fr"}
    assert two["country"] is None
    assert nodes(germany["cityCollection"]) == [{"id": 3}]
    assert nodes(france["cityCollection"]) == [{"id": 1}]
    boss, worker, other = nodes(data["employeeCollection"])
    assert (boss["email_address"], worker["email_address"]) == (None, {"address": "two@example.org"})
    assert (boss["badge"], worker["badge"]) == ({"employee": {"id": 1}}, None)
    assert (boss["employee"], worker["employee"]) == (None, {"id": 1})
    assert nodes(boss["employeeCollection"]) == [{"id": 2}, {"id": 3}]
    assert nodes(boss["messageCollection"]) == [{"id": 1}, {"id": 3}]
    assert nodes(other["messageCollectionByreceiver_id"]) == [{"id": 3, "employee": {"id": 1}}]
    assert nodes(data["email_addressCollection"]) == [{"employee": {"id": 2}}, {"employee": None}]
    rooms = [row["room"] for row in nodes(data["bookingCollection"])]
    assert rooms == [{"note": "b", "bookingCollection": {"edges": [{"node": {"id": 1}}]}}, None, None]


async def test_declared_relationships_of_views_can_be_queried(related: Service) -> None:
    rows = await related.rows(
        "city_list",
        "id land { name listed { edges { node { id } } } } city { id } some { country_code }",
        "orderBy: {id: AscNullsLast}",
    )
    assert rows[0] == {
        "id": 1,
        "land": {"name": "Germany", "listed": {"edges": [{"node": {"id": 1}}, {"node": {"id": 2}}]}},
        "city": {"id": 1},
        "some": {"country_code": "de"},
    }
    [city] = await related.rows("city", "city_list { id } listings { edges { node { id } } }", "first: 1")
    assert city["city_list"] == {"id": 1}
    assert nodes(city["listings"]) == [{"id": 1}, {"id": 2}]


async def test_declared_key_that_postgresql_has_is_one_relationship(related: Service) -> None:
    assert relations(related, "locker") == {"holder": "employee"}
    assert await related.rows("locker", "holder { id }") == [{"holder": {"id": 1}}]
