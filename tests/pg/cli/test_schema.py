"""``dataapi schema`` and what ``dataapi check-config`` says about persisted documents."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog.directives import FEATURES
from dataapi.cli.main import run
from graphql import build_schema, get_introspection_query, graphql_sync, parse, print_schema, validate
from openapi_spec_validator import OpenAPIV31SpecValidator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from graphql import GraphQLSchema
    from support.postgres import Database, Server

SHOP = """
comment on schema public is '@graphql({"inflect_names": true})';
create type order_status as enum ('placed', 'in transit');
comment on type order_status is '@graphql({"mappings": {"in transit": "IN_TRANSIT"}})';
create table customer_order (id bigint primary key, status order_status not null, note text);
comment on table customer_order is
    '@graphql({"description": "What a \\"customer\\" asked for", "totalCount": {"enabled": true}})';
create table secret (id int primary key);
create function open_orders() returns setof customer_order stable language sql
    as $$ select * from customer_order where status = 'placed' $$;
create function ship(order_id bigint, note text default 'a, b') returns order_status volatile language sql
    as $$ update customer_order set status = 'in transit' where id = order_id returning status $$;
grant select on customer_order to anon;
grant all on all tables in schema public to service_role;
revoke execute on function ship from public;
grant execute on function ship to service_role;
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where no configuration file lies about."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def shop(server: Server) -> Iterator[Database]:
    database = server.create_database(SHOP)
    yield database
    server.drop_database(database)


def environ(database: Database, **more: str) -> dict[str, str]:
    settings = {"db_uri": database.uri, "jwt_secret": "not-so-secret-but-long-enough-32", **more}
    return {f"DATAAPI_PROJECT_{name.upper()}": value for name, value in settings.items()}


def dataapi(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run the command, return its exit code, output and errors."""
    output, errors = io.StringIO(), io.StringIO()
    code = run(arguments, environment, output, errors)
    return code, output.getvalue(), errors.getvalue()


def printed(environment: dict[str, str], *arguments: str) -> str:
    code, output, errors = dataapi(environment, "schema", *arguments)
    assert (code, errors) == (0, "")
    return output


def schema_of(database: Database, role: str) -> GraphQLSchema:
    return build_schema(printed(environ(database), "--role", role, "--format", "sdl"))


@pytest.mark.parametrize("role", ["anon", "authenticated", "service_role"])
def test_the_schema_is_read_back_whole(chinook: Database, role: str) -> None:
    text = printed(environ(chinook), "--role", role)
    schema = build_schema(text)
    assert print_schema(schema) + "\n" == text
    assert graphql_sync(schema, get_introspection_query()).errors is None
    assert (schema.mutation_type is None) == (role == "anon")


@pytest.mark.parametrize("role", ["anon", "service_role"])
def test_the_rest_api_is_described_for_a_role(chinook: Database, role: str) -> None:
    text = printed(environ(chinook), "--role", role, "--format", "openapi")
    document = json.loads(text)
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"] == "3.1.0"
    assert ("post" in document["paths"]["/album"]) is (role == "service_role")
    assert printed(environ(chinook), "--role", role, "--format", "openapi") == text
    assert text.endswith("}\n")


def test_features_that_are_turned_on_are_in_it(chinook: Database) -> None:
    environment = environ(chinook, graphql_features=", ".join(FEATURES))
    text = printed(environment, "--role", "service_role")
    assert print_schema(build_schema(text)) + "\n" == text
    assert len(text) > len(printed(environ(chinook), "--role", "service_role"))


def test_a_document_that_the_schema_allows_is_one_that_runs(shop: Database) -> None:
    document = """
        query A { openOrders(first: 1, orderBy: [{status: AscNullsLast}]) { totalCount edges { node { nodeId status } } } }
        mutation B { insertIntoCustomerOrderCollection(objects: [{id: "1", status: IN_TRANSIT}]) { affectedCount } }
        mutation C { ship(orderId: "1") }
    """  # noqa: E501
    assert validate(schema_of(shop, "service_role"), parse(document)) == []
    refused = validate(schema_of(shop, "anon"), parse(document))
    assert len(refused) > 0


def test_the_schema_is_what_the_role_sees(shop: Database) -> None:
    """Tables without a grant are not in it, though introspection is off for everybody."""
    anon, service = schema_of(shop, "anon"), schema_of(shop, "service_role")
    assert "Secret" not in anon.type_map
    assert "Secret" in service.type_map
    assert anon.mutation_type is None
    assert service.mutation_type is not None
    assert "ship" in service.mutation_type.fields
    assert anon.type_map["CustomerOrder"].description == 'What a "customer" asked for'


def test_the_text_is_the_same_each_time(shop: Database, server: Server) -> None:
    """Two databases made in another order of objects print alike, so that texts can be compared."""
    first = printed(environ(shop), "--role", "service_role")
    assert printed(environ(shop), "--role", "service_role") == first
    create, *rest = SHOP.split("create table secret (id int primary key);")
    other = server.create_database("create table secret (id int primary key);", create, *rest)
    assert printed(environ(other), "--role", "service_role") == first
    server.drop_database(other)


def test_settings_of_the_project_shape_the_schema(chinook: Database) -> None:
    plain = printed(environ(chinook), "--role", "anon")
    strict = printed(environ(chinook, graphql_non_null_relationships="yes"), "--role", "anon")
    assert "artist: artist\n" in plain
    assert "artist: artist!\n" in strict


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (
            ("--role", "nobody_at_all"),
            os.EX_DATAERR,
            "role nobody_at_all does not exist, or the login role of db-uri is not a member of it",
        ),
        (
            ("--role", "anon", "--project", "x"),
            os.EX_USAGE,
            "--project: expected one of abcdefghijklmnopqrst",
        ),
    ],
)
def test_what_cannot_be_printed_is_said(
    shop: Database, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    code, output, errors = dataapi(environ(shop), "schema", *arguments)
    assert (code, output) == (status, "")
    assert expected in errors


def test_a_database_that_is_away_is_said(shop: Database) -> None:
    away = {**environ(shop), "DATAAPI_PROJECT_DB_URI": "postgresql://nobody@127.0.0.1:1/none"}
    code, output, errors = dataapi(away, "schema", "--role", "anon")
    assert (code, output) == (os.EX_UNAVAILABLE, "")
    [line] = errors.splitlines()
    assert line.startswith("project abcdefghijklmnopqrst: the database cannot be read: ")


def test_one_of_several_projects_is_named(shop: Database, chinook: Database) -> None:
    several: dict[str, str] = {}
    for letter, database in (("A", shop), ("B", chinook)):
        prefix = f"DATAAPI_PROJECT_{letter * 20}"
        several |= {f"{prefix}_DB_URI": database.uri, f"{prefix}_HOSTS": f"{letter}.example.org"}
        several[f"{prefix}_REQUIRE_API_KEY"] = "no"
    code, _, errors = dataapi(several, "schema", "--role", "anon")
    assert code == os.EX_USAGE
    assert errors == f"--project: expected one of {'a' * 20}, {'b' * 20}\n"
    assert "type CustomerOrder " in printed(several, "--role", "anon", "--project", "a" * 20)
    assert "type album " in printed(several, "--role", "anon", "--project", "b" * 20)


@pytest.mark.parametrize("arguments", [(), ("--role",), ("--role", "anon", "--format", "xml")])
def test_a_role_and_a_known_format_are_needed(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        dataapi({}, "schema", *arguments)
    assert exited.value.code == os.EX_USAGE
    assert "usage: dataapi schema" in capsys.readouterr().err


def write(folder: Path, **files: Any) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


def test_check_config_names_documents_that_are_left_out(shop: Database, tmp_path: Path) -> None:
    """One line for each, with the file; the command fails until they are put right."""
    folder = write(tmp_path / "documents", good__graphql="{ a }", bad__graphql="{", m__json=json.dumps([]))
    environment = environ(shop, graphql_documents=str(folder), db_channel_enabled="no")
    code, output, errors = dataapi(environment, "check-config")
    assert (code, output) == (os.EX_CONFIG, "")
    first, second = errors.splitlines()
    start = "project abcdefghijklmnopqrst: graphql-documents: "
    assert first.startswith(f"{start}bad.graphql: document 'bad' is skipped: Syntax Error")
    assert second.startswith(f"{start}m.json: is not a manifest: ")

    (folder / "bad.graphql").unlink()
    (folder / "m.json").unlink()
    assert dataapi(environment, "check-config")[0] == 0


def test_check_config_looks_at_documents_without_the_database(tmp_path: Path) -> None:
    folder = write(tmp_path / "documents", bad__graphql="{")
    environment = {
        "DATAAPI_PROJECT_DB_URI": "postgresql://nobody@127.0.0.1:1/none",
        "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
        "DATAAPI_PROJECT_GRAPHQL_DOCUMENTS": str(folder),
    }
    code, _, errors = dataapi(environment, "check-config")
    assert code == os.EX_CONFIG
    assert [" is skipped: " in line for line in errors.splitlines()] == [True, False]
