"""Privileges computed from the catalog match PostgreSQL's own functions."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from dataapi.catalog.model import Privileges
from support.catalog import load_catalog, table_named
from support.postgres import Database, Server

ROLES = ("priv_a", "priv_b", "priv_c", "priv_d", "priv_reader", "priv_writer", "priv_super")
TABLES = ("one", "two", "three")
COLUMNS = ("id", "x", "y")
TABLE_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "REFERENCES", "TRIGGER", "TRUNCATE")
COLUMN_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "REFERENCES")

SETUP = """
create role priv_a nologin;
create role priv_b nologin in role priv_a;
create role priv_c nologin in role priv_b;
create role priv_d nologin noinherit in role priv_a;
create role priv_reader nologin; create role priv_writer nologin; create role priv_super nologin superuser;
grant priv_a, priv_b, priv_c, priv_d, priv_reader, priv_writer, priv_super to authenticator;
do $$ begin
    if to_regrole('pg_read_all_data') is not null then
        grant pg_read_all_data to priv_reader; grant pg_write_all_data to priv_writer;
    end if;
end $$;
"""
TEARDOWN = """
drop owned by priv_a, priv_b, priv_c, priv_d, priv_reader, priv_writer, priv_super cascade;
drop role priv_a, priv_b, priv_c, priv_d, priv_reader, priv_writer, priv_super;
"""
OBJECTS = """
create schema api;
create table api.one (id integer primary key, x text, y text);
create table api.two (id integer primary key, x text, y text);
create view api.three as select * from api.one;
create function api.f(integer) returns integer language sql as 'select 1';
create function api.g() returns integer language sql as 'select 1';
create type api.color as enum ('red');
create table api.user_of (color api.color, colors api.color[]);
"""


@pytest.fixture
def granted(server: Server) -> Iterator[Database]:
    database = server.create_database(OBJECTS)
    database.execute(SETUP)
    yield database
    database.execute(TEARDOWN)
    server.drop_database(database)


def random_grants(choose: random.Random) -> str:
    """Return random grants, revocations and changes of owners."""
    grantees = ("public", *ROLES[:4])
    statements = []
    for _ in range(choose.randint(5, 25)):
        table = f"api.{choose.choice(TABLES)}"
        verb, preposition = choose.choice((("grant", "to"), ("grant", "to"), ("revoke", "from")))
        role = choose.choice(grantees)
        privilege = choose.choice(
            (
                f"{choose.choice((*TABLE_PRIVILEGES, 'ALL'))} on {table}",
                f"{choose.choice(COLUMN_PRIVILEGES)} ({choose.choice(COLUMNS)}) on {table}",
                f"execute on function {choose.choice(('api.f(integer)', 'api.g()'))}",
                f"{choose.choice(('usage', 'create', 'all'))} on schema api",
                "usage on type api.color",
            )
        )
        statements.append(f"{verb} {privilege} {preposition} {role}")
        if choose.random() < 0.1:
            statements.append(f"alter table {table} owner to {choose.choice(ROLES[:4])}")
        if choose.random() < 0.1:
            statements.append(f"revoke all on {table} from {choose.choice(ROLES[:4])}")
    return ";".join(statements)


def postgres_privileges(database: Database) -> dict[tuple[str, ...], bool]:
    return {
        tuple(key): allowed
        for key, allowed in database.execute(
            """
            select array['schema', r, 'USAGE'], has_schema_privilege(r, 'api', 'USAGE')
            from unnest(%(roles)s) r
            union all
            select array['table', r, t, p], case when p = any(%(narrow)s)
                then has_any_column_privilege(r, 'api.' || t, p)
                else has_table_privilege(r, 'api.' || t, p) end
            from unnest(%(roles)s) r, unnest(%(tables)s) t, unnest(%(wide)s) p
            union all
            select array['whole', r, t, p], has_table_privilege(r, 'api.' || t, p)
            from unnest(%(roles)s) r, unnest(%(tables)s) t, unnest(%(wide)s) p
            union all
            select array['column', r, t, p, c], has_column_privilege(r, 'api.' || t, c, p)
            from unnest(%(roles)s) r, unnest(%(tables)s) t, unnest(%(narrow)s) p, unnest(%(columns)s) c
            union all
            select array['function', r, p.proname], has_function_privilege(r, p.oid, 'EXECUTE')
            from unnest(%(roles)s) r, pg_proc p where p.pronamespace = 'api'::regnamespace
            union all
            select array['type', r, t], has_type_privilege(r, t, 'USAGE')
            from unnest(%(roles)s) r, unnest(array['api.color', 'api.color[]']) t
            """,
            {  # type: ignore[arg-type]
                "roles": list(ROLES),
                "tables": list(TABLES),
                "wide": list(TABLE_PRIVILEGES),
                "narrow": list(COLUMN_PRIVILEGES),
                "columns": list(COLUMNS),
            },
        )
    }


def our_privileges(database: Database) -> dict[tuple[str, ...], bool]:
    catalog = load_catalog(database.uri, "api")
    color = {column.name: column.type for column in table_named(catalog, "user_of", "api").columns}
    privileges: dict[tuple[str, ...], bool] = {}
    for role in ROLES:
        view = Privileges(catalog, role)
        privileges["schema", role, "USAGE"] = view.can_use_schema("api")
        for name in TABLES:
            table = table_named(catalog, name, "api")
            for privilege in TABLE_PRIVILEGES:
                privileges["table", role, name, privilege] = view.can(table, privilege)
                privileges["whole", role, name, privilege] = view.has_table_privilege(table, privilege)
            for privilege in COLUMN_PRIVILEGES:
                for column in COLUMNS:
                    privileges["column", role, name, privilege, column] = column in view.columns(
                        table, privilege
                    )
        for function in catalog.functions:
            privileges["function", role, function.name] = view.can_execute(function)
        privileges["type", role, "api.color"] = view.can_use_type(color["color"])
        privileges["type", role, "api.color[]"] = view.can_use_type(color["colors"])
    return privileges


def test_privileges_match_postgresqls_for_random_grants(granted: Database) -> None:
    """Covers owners, PUBLIC, memberships, NOINHERIT, pg_read_all_data, pg_write_all_data and superusers."""
    for seed in range(12):
        statements = random_grants(random.Random(seed))
        granted.execute(statements)
        assert our_privileges(granted) == postgres_privileges(granted), f"seed {seed}: {statements}"


def test_role_that_may_not_be_assumed_is_unknown(granted: Database) -> None:
    catalog = load_catalog(granted.uri, "api")
    with pytest.raises(LookupError, match="priv_nobody"):
        Privileges(catalog, "priv_nobody")


def test_schema_that_is_not_exposed_cannot_be_used(granted: Database) -> None:
    catalog = load_catalog(granted.uri, "api")
    assert not Privileges(catalog, "priv_super").can_use_schema("public")
