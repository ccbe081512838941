"""``dataapi schema``, and how ``dataapi check-config`` checks persisted documents."""

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
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a directory without a configuration file."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def shop(server: Server) -> Iterator[Database]:
    database = server.create_database(SHOP)
    yield database
    server.drop_database(database)


def environ(database: Database, **extra: str) -> dict[str, str]:
    settings = {"db_uri": database.uri, "jwt_secret": "not-so-secret-but-long-enough-32", **extra}
    return {f"DATAAPI_PROJECT_{name.upper()}": value for name, value in settings.items()}


def dataapi(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run the command and return its exit code, output and errors."""
    output, errors = io.StringIO(), io.StringIO()
    code = run(arguments, environment, output, errors)
    return code, output.getvalue(), errors.getvalue()


def print_schema_of(environment: dict[str, str], *arguments: str) -> str:
    code, output, errors = dataapi(environment, "schema", *arguments)
    assert (code, errors) == (0, "")
    return output


def schema_of(database: Database, role: str) -> GraphQLSchema:
    return build_schema(print_schema_of(environ(database), "--role", role, "--format", "sdl"))


@pytest.mark.parametrize("role", ["anon", "authenticated", "service_role"])
def test_printed_schema_can_be_parsed(chinook: Database, role: str) -> None:
    text = print_schema_of(environ(chinook), "--role", role)
    schema = build_schema(text)
    assert print_schema(schema) + "\n" == text
    assert graphql_sync(schema, get_introspection_query()).errors is None
    assert (schema.mutation_type is None) == (role == "anon")


@pytest.mark.parametrize("role", ["anon", "service_role"])
def test_openapi_document_depends_on_the_role(chinook: Database, role: str) -> None:
    text = print_schema_of(environ(chinook), "--role", role, "--format", "openapi")
    document = json.loads(text)
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"] == "3.1.0"
    assert ("post" in document["paths"]["/album"]) is (role == "service_role")
    assert print_schema_of(environ(chinook), "--role", role, "--format", "openapi") == text
    assert text.endswith("}\n")


def test_schema_includes_enabled_features(chinook: Database) -> None:
    environment = environ(chinook, graphql_features=", ".join(FEATURES))
    text = print_schema_of(environment, "--role", "service_role")
    assert print_schema(build_schema(text)) + "\n" == text
    assert len(text) > len(print_schema_of(environ(chinook), "--role", "service_role"))


def test_documents_can_be_validated_with_the_printed_schema(shop: Database) -> None:
    document = """
        query A { openOrders(first: 1, orderBy: [{status: AscNullsLast}]) { totalCount edges { node { nodeId status } } } }
        mutation B { insertIntoCustomerOrderCollection(objects: [{id: "1", status: IN_TRANSIT}]) { affectedCount } }
        mutation C { ship(orderId: "1") }
    """  # noqa: E501
    assert validate(schema_of(shop, "service_role"), parse(document)) == []
    rejected = validate(schema_of(shop, "anon"), parse(document))
    assert len(rejected) > 0


def test_schema_is_limited_to_the_roles_privileges(shop: Database) -> None:
    anon, service = schema_of(shop, "anon"), schema_of(shop, "service_role")
    assert "Secret" not in anon.type_map
    assert "Secret" in service.type_map
    assert anon.mutation_type is None
    assert service.mutation_type is not None
    assert "ship" in service.mutation_type.fields
    assert anon.type_map["CustomerOrder"].description == 'What a "customer" asked for'


def test_schema_does_not_depend_on_the_order_of_objects(shop: Database, server: Server) -> None:
    """Users compare printed schemas with diff."""
    first = print_schema_of(environ(shop), "--role", "service_role")
    assert print_schema_of(environ(shop), "--role", "service_role") == first
    create, *rest = SHOP.split("create table secret (id int primary key);")
    other = server.create_database("create table secret (id int primary key);", create, *rest)
    assert print_schema_of(environ(other), "--role", "service_role") == first
    server.drop_database(other)


def test_schema_depends_on_project_settings(chinook: Database) -> None:
    plain = print_schema_of(environ(chinook), "--role", "anon")
    strict = print_schema_of(environ(chinook, graphql_non_null_relationships="yes"), "--role", "anon")
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
def test_unknown_role_or_project_is_an_error(
    shop: Database, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    code, output, errors = dataapi(environ(shop), "schema", *arguments)
    assert (code, output) == (status, "")
    assert expected in errors


def test_unreachable_database_is_reported(shop: Database) -> None:
    unreachable = {**environ(shop), "DATAAPI_PROJECT_DB_URI": "postgresql://nobody@127.0.0.1:1/none"}
    code, output, errors = dataapi(unreachable, "schema", "--role", "anon")
    assert (code, output) == (os.EX_UNAVAILABLE, "")
    [line] = errors.splitlines()
    assert line.startswith("project abcdefghijklmnopqrst: the database cannot be read: ")


def test_project_is_required_if_there_are_several(shop: Database, chinook: Database) -> None:
    projects: dict[str, str] = {}
    for letter, database in (("A", shop), ("B", chinook)):
        prefix = f"DATAAPI_PROJECT_{letter * 20}"
        projects |= {f"{prefix}_DB_URI": database.uri, f"{prefix}_HOSTS": f"{letter}.example.org"}
        projects[f"{prefix}_REQUIRE_API_KEY"] = "no"
    code, _, errors = dataapi(projects, "schema", "--role", "anon")
    assert code == os.EX_USAGE
    assert errors == f"--project: expected one of {'a' * 20}, {'b' * 20}\n"
    assert "type CustomerOrder " in print_schema_of(projects, "--role", "anon", "--project", "a" * 20)
    assert "type album " in print_schema_of(projects, "--role", "anon", "--project", "b" * 20)


@pytest.mark.parametrize("arguments", [(), ("--role",), ("--role", "anon", "--format", "xml")])
def test_role_and_known_format_are_required(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        dataapi({}, "schema", *arguments)
    assert exit_info.value.code == os.EX_USAGE
    assert "usage: dataapi schema" in capsys.readouterr().err


def write(folder: Path, **files: Any) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


def test_check_config_reports_invalid_documents(shop: Database, tmp_path: Path) -> None:
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


def test_check_config_checks_documents_without_the_database(tmp_path: Path) -> None:
    folder = write(tmp_path / "documents", bad__graphql="{")
    environment = {
        "DATAAPI_PROJECT_DB_URI": "postgresql://nobody@127.0.0.1:1/none",
        "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
        "DATAAPI_PROJECT_GRAPHQL_DOCUMENTS": str(folder),
    }
    code, _, errors = dataapi(environment, "check-config")
    assert code == os.EX_CONFIG
    assert [" is skipped: " in line for line in errors.splitlines()] == [True, False]
