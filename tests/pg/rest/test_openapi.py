"""OpenAPI 2.0 and 3.1 descriptions of the REST API for each role."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.messages import Request
from dataapi.rest.openapi.description import Version, describe, with_address
from dataapi.settings import Project
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV31SpecValidator
from support.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.catalog.model import Catalog
    from support.postgres import Database, Server

SHOP = r"""
create schema api;
create schema private;
comment on schema api is E'The shop\n\nEverything that is\nsold. @graphql({"inflect_names": true})';
grant usage on schema api to anon, service_role;
create type api.status as enum ('open', 'it''s shut');
create type api.spot as (x integer, label text);
create domain api.code as varchar(8) default 'none';
create domain api.color as integer;
create function public.color_json(api.color) returns json
    language sql immutable as $$ select to_json('#'::text) $$;
set client_min_messages = error;
create cast (api.color as json) with function public.color_json(api.color) as implicit;
create domain "text/html" as text;

create table api.customer (
    id bigint generated always as identity primary key,
    email varchar(100) not null unique,
    note text
);
comment on table api.customer is E'Who buys\nand pays @rest({"max_rows": 10})';
comment on column api.customer.email is 'Where to write';
create table api.purchase (
    id integer primary key default 7,
    customer_id bigint not null references api.customer,
    status api.status not null default 'it''s shut',
    code api.code,
    color api.color,
    spot api.spot,
    tags text[] default '{}',
    extra jsonb default '{}',
    rows_seen api.spot[],
    amount numeric(8, 2) default 12.5,
    ratio double precision default 'NaN',
    paid boolean not null default false,
    bought_at timestamptz default now(),
    paid_at timestamptz default '2024-01-02 03:04:05+00',
    forever date default 'infinity',
    fixed uuid default '7b6d4b0e-5f0e-4a55-8f52-3d8ec1d8a1a4',
    day date default '2024-01-02',
    token uuid default gen_random_uuid(),
    ip inet,
    "limit" integer,
    total numeric generated always as (amount * 2) stored
);
create table api."Odd näme/{x}~" (id integer primary key, "a b" text, "Ü" integer references api.customer);
create table api.secret (id integer primary key);
create table api.partly (id integer primary key, shown text, covered text);
create table api.parted (id integer primary key) partition by range (id);
create table api.parted_1 partition of api.parted for values from (1) to (10);
create table api.vault (id integer primary key, covert integer unique, spare integer unique);
create table api.visitor (
    id integer primary key, vault_id integer references api.vault (covert) references api.vault (spare)
);
create domain api.level as integer not null;
create table api.writable (id integer primary key, password text, level api.level default 1);
create view api.writable_view as select id, level from api.writable;
create view api.customer_view as select id, email from api.customer;
create view api.counted as select count(*) as n from api.customer;
create materialized view api.frozen as select * from api.customer;
create table private.hidden (id integer primary key);

create function api.add(a integer, b integer default 2) returns integer language sql immutable
    as 'select a + b';
comment on function api.add(integer, integer) is E'Adds\n\nTwo numbers';
create function api.change(a text) returns void language sql as 'select';
create function api.several(variadic parts text[]) returns setof api.customer language sql stable
    as 'select * from api.customer';
create function api.tabular(when_ date) returns table (n integer, t text) language sql stable
    as 'select 1, null::text';
create function api.whole(json) returns json language sql stable as 'select $1';
create function api.nameless(integer, integer) returns integer language sql as 'select 1';
create function api.page() returns "text/html" language sql stable as $$ select '<p>'::"text/html" $$;
create function api.loaded(x integer) returns integer language sql stable as 'select 1';
create function api.loaded(x text, y jsonb) returns text language sql stable as 'select x';
create function api.moved(spot api.spot, customer api.customer) returns api.spot language sql stable
    as 'select spot';
create function api.guarded() returns integer language sql as 'select 1';
revoke execute on function api.guarded() from public;

grant usage on schema api to authenticated;
grant select (id), insert on api.writable to authenticated;
grant select, insert on api.writable_view to authenticated;
grant select on all tables in schema api to anon;
revoke select on api.secret, api.partly, api.vault from anon;
grant select (id, shown), update (shown) on api.partly to anon;
grant select (id, spare) on api.vault to anon;
grant insert, delete on api.purchase to anon;
grant all on all tables in schema api to service_role;
grant execute on all functions in schema api to service_role;
"""

Document = dict[str, Any]


@pytest.fixture(scope="module")
def shop(server: Server) -> Iterator[Catalog]:
    """Reflect a schema with every kind of object that descriptions contain."""
    database = server.create_database(SHOP)
    yield load_catalog(database.uri, "api")
    server.drop_database(database)


_cache: dict[Any, tuple[Catalog, Document]] = {}


def described(catalog: Catalog, role: str, version: Version, **project: Any) -> Document:
    """Return a description after checking it with a public validator. Results are cached."""
    key = (id(catalog), role, version, *project.items())
    if key not in _cache:
        settings = Project("abcdefghijklmnopqrst", "acme", "", db_schemas=catalog.search_path, **project)
        request = Request("1", "GET", "/rest/v1/", "", {"host": "localhost:8000"}, b"")
        body = describe(settings, catalog, role, catalog.search_path[0], version, lambda: None)
        document: Document = json.loads(with_address(settings, request, version, body))
        validator = OpenAPIV2SpecValidator if version is Version.SWAGGER else OpenAPIV31SpecValidator
        assert [(list(error.path), error.message) for error in validator(document).iter_errors()] == []
        # A reference to the catalog prevents another catalog from getting its id.
        _cache[key] = catalog, document
    return _cache[key][1]


def swagger(catalog: Catalog, role: str = "anon", **project: Any) -> Document:
    return described(catalog, role, Version.SWAGGER, **project)


def openapi(catalog: Catalog, role: str = "anon", **project: Any) -> Document:
    return described(catalog, role, Version.OPENAPI, **project)


def references(parameters: list[dict[str, str]]) -> list[str]:
    """Return the last path component of each reference."""
    return [parameter["$ref"].rpartition("/")[2] for parameter in parameters]


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("role", ["anon", "authenticated", "service_role"])
@pytest.mark.parametrize("mode", ["follow-privileges", "ignore-privileges"])
def test_description_is_valid(shop: Catalog, version: Version, role: str, mode: str) -> None:
    document = described(shop, role, version, openapi_mode=mode)
    expected = {"anon": True, "service_role": True, "authenticated": mode == "ignore-privileges"}
    assert ("/customer" in document["paths"]) is expected[role]


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("role", ["anon", "service_role"])
def test_chinook_sample_can_be_described(chinook: Database, version: Version, role: str) -> None:
    document = described(load_catalog(chinook.uri), role, version)
    assert {"/album", "/artist", "/track"} <= document["paths"].keys()
    assert ("post" in document["paths"]["/album"]) is (role == "service_role")


def test_schema_comment_provides_title_and_description(shop: Catalog) -> None:
    """The first line is the title, the rest is the description, and directives are removed."""
    document = swagger(shop)
    assert document["swagger"] == "2.0"
    info = document["info"]
    assert (info["title"], info["description"]) == ("The shop", "Everything that is\nsold.")
    assert (document["host"], document["basePath"], document["schemes"]) == (
        "localhost:8000",
        "/rest/v1",
        ["http"],
    )
    assert document["produces"] == document["consumes"]
    assert document["produces"] == [
        "application/json",
        "application/vnd.pgrst.object+json;nulls=stripped",
        "application/vnd.pgrst.object+json",
        "text/csv",
    ]


def test_proxy_address_is_the_server_address(shop: Catalog) -> None:
    address = "https://api.example.org:8443/shop/"
    document = swagger(shop, openapi_server_proxy_uri=address)
    assert (document["host"], document["basePath"], document["schemes"]) == (
        "api.example.org:8443",
        "/shop",
        ["https"],
    )
    servers = openapi(shop, openapi_server_proxy_uri=address)["servers"]
    assert servers == [{"url": "https://api.example.org:8443/shop"}]
    assert openapi(shop)["servers"] == [{"url": "/rest/v1"}]


def test_table_description_matches_postgrest(shop: Catalog) -> None:
    """Clients parse PostgREST's notes on keys, formats, defaults and required columns."""
    definitions = swagger(shop)["definitions"]
    assert definitions["customer"] == {
        "description": "Who buys\nand pays",
        "type": "object",
        "required": ["id", "email"],
        "properties": {
            "id": {
                "description": "Note:\nThis is a Primary Key.<pk/>",
                "format": "int64",
                "type": "integer",
            },
            "email": {
                "description": "Where to write",
                "format": "character varying",
                "maxLength": 100,
                "type": "string",
            },
            "note": {"format": "text", "type": "string"},
        },
    }
    purchase = definitions["purchase"]["properties"]
    assert purchase["customer_id"] == {
        "description": "Note:\nThis is a Foreign Key to `customer.id`.<fk table='customer' column='id'/>",
        "format": "int64",
        "type": "integer",
    }
    assert purchase["status"] == {
        "default": "it's shut",
        "enum": ["open", "it's shut"],
        "format": "api.status",
        "type": "string",
    }
    assert purchase["tags"] == {"format": "text[]", "items": {"type": "string"}, "type": "array"}
    assert purchase["extra"] == {"format": "jsonb"}
    assert purchase["code"] == {
        "default": "none",
        "format": "character varying",
        "maxLength": 8,
        "type": "string",
    }
    defaults = {name: column.get("default") for name, column in purchase.items()}
    assert defaults["id"] == 7
    assert defaults["amount"] == 12.5
    assert defaults["ratio"] is None
    assert defaults["paid"] is False
    assert defaults["day"] == "2024-01-02"
    assert defaults["bought_at"] == "now()"
    assert defaults["fixed"] == "7b6d4b0e-5f0e-4a55-8f52-3d8ec1d8a1a4"
    assert defaults["token"] is defaults["forever"] is None
    assert definitions["purchase"]["required"] == ["id", "customer_id", "status", "paid"]


def test_view_columns_have_the_keys_of_the_underlying_table(shop: Catalog) -> None:
    view = swagger(shop)["definitions"]["customer_view"]
    assert view["properties"]["id"]["description"] == "Note:\nThis is a Primary Key.<pk/>"
    assert "required" not in view


def test_table_operations_match_postgrest(shop: Catalog) -> None:
    document = swagger(shop, "service_role")
    path = document["paths"]["/customer"]
    assert list(path) == ["get", "post", "patch", "delete"]
    assert path["get"]["tags"] == ["customer"]
    assert (path["get"]["summary"], path["get"]["description"]) == ("Who buys", "and pays")
    filters = [f"rowFilter.customer.{name}" for name in ("id", "email", "note")]
    assert references(path["get"]["parameters"]) == [
        *filters,
        *("select", "order", "range", "rangeUnit", "offset", "limit", "preferCount"),
    ]
    assert path["get"]["responses"] == {
        "200": {
            "description": "OK",
            "schema": {"type": "array", "items": {"$ref": "#/definitions/customer"}},
        },
        "206": {"description": "Partial Content"},
    }
    assert references(path["post"]["parameters"]) == ["body.customer", "select", "preferPost"]
    assert references(path["patch"]["parameters"]) == [*filters, "body.customer", "preferReturn"]
    assert references(path["delete"]["parameters"]) == [*filters, "preferReturn"]
    assert path["post"]["responses"] == {"201": {"description": "Created"}}
    assert path["patch"]["responses"] == path["delete"]["responses"] == {"204": {"description": "No Content"}}
    assert document["parameters"]["rowFilter.customer.email"] == {
        "name": "email",
        "description": "Where to write",
        "required": False,
        "in": "query",
        "type": "string",
    }


@pytest.mark.parametrize(
    ("path", "anon", "service"),
    [
        ("/customer", ["get"], ["get", "post", "patch", "delete"]),
        ("/purchase", ["get", "post", "delete"], ["get", "post", "put", "patch", "delete"]),
        ("/secret", None, ["get", "post", "put", "patch", "delete"]),
        ("/partly", ["get", "patch"], ["get", "post", "put", "patch", "delete"]),
        ("/customer_view", ["get"], ["get", "post", "put", "patch", "delete"]),
        ("/counted", ["get"], ["get"]),
        ("/frozen", ["get"], ["get"]),
        ("/parted", ["get"], ["get", "post", "put", "patch", "delete"]),
        ("/parted_1", None, None),
        ("/hidden", None, None),
        ("/rpc/guarded", None, ["post"]),
        ("/rpc/add", ["get", "post"], ["get", "post"]),
        ("/rpc/change", ["post"], ["post"]),
        ("/rpc/nameless", None, None),
        ("/rpc/whole", ["post"], ["post"]),
    ],
)
@pytest.mark.parametrize("version", Version)
def test_description_lists_only_permitted_operations(
    shop: Catalog, version: Version, path: str, anon: list[str] | None, service: list[str] | None
) -> None:
    """``ignore-privileges`` lists all operations. Version 2.0 has no ``PUT``."""
    if version is Version.SWAGGER and service is not None:
        service = [method for method in service if method != "put"]

    def methods(role: str, mode: str) -> list[str] | None:
        path_item = described(shop, role, version, openapi_mode=mode)["paths"].get(path)
        return None if path_item is None else list(path_item)

    assert methods("anon", "follow-privileges") == anon
    assert methods("service_role", "follow-privileges") == service
    assert methods("anon", "ignore-privileges") == service


def test_description_hides_columns_without_privileges(shop: Catalog) -> None:
    document = swagger(shop)
    assert list(document["definitions"]["partly"]["properties"]) == ["id", "shown"]
    assert references(document["paths"]["/partly"]["patch"]["parameters"])[:2] == [
        "rowFilter.partly.id",
        "rowFilter.partly.shown",
    ]
    schemas = openapi(shop)["components"]["schemas"]
    assert list(schemas["partly.update"]["properties"]) == ["shown"]
    assert "covered" not in json.dumps(openapi(shop))


def test_keys_do_not_reveal_hidden_columns(shop: Catalog) -> None:
    for document in (swagger(shop), openapi(shop)):
        assert "covert" not in json.dumps(document)
    noted = swagger(shop)["definitions"]["visitor"]["properties"]["vault_id"]["description"]
    assert noted == "Note:\nThis is a Foreign Key to `vault.spare`.<fk table='vault' column='spare'/>"
    assert "covert" in json.dumps(swagger(shop, "service_role"))
    assert "secret" not in json.dumps(document)


def test_function_descriptions_match_postgrest(shop: Catalog) -> None:
    paths = swagger(shop)["paths"]
    add = paths["/rpc/add"]
    assert add["get"]["tags"] == ["(rpc) add"]
    assert (add["post"]["summary"], add["post"]["description"]) == ("Adds", "Two numbers")
    assert add["get"]["parameters"] == [
        {"name": "a", "in": "query", "required": True, "type": "integer", "format": "int32"},
        {"name": "b", "in": "query", "required": False, "type": "integer", "format": "int32"},
    ]
    arguments, preference = add["post"]["parameters"]
    assert preference == {"$ref": "#/parameters/preferParams"}
    assert arguments == {
        "name": "args",
        "in": "body",
        "required": True,
        "schema": {
            "description": "Adds\n\nTwo numbers",
            "required": ["a"],
            "type": "object",
            "properties": {
                "a": {"format": "int32", "type": "integer"},
                "b": {"format": "int32", "type": "integer"},
            },
        },
    }
    [parts] = paths["/rpc/several"]["get"]["parameters"]
    assert parts == {
        "name": "parts",
        "in": "query",
        "required": True,
        "type": "array",
        "items": {"type": "string", "format": "text"},
        "collectionFormat": "multi",
    }
    assert paths["/rpc/whole"]["post"]["parameters"][0]["schema"] == {"format": "json"}


def test_version_2_describes_only_the_last_overload(shop: Catalog) -> None:
    """Version 3.1 describes the arguments of all overloads."""
    path = swagger(shop)["paths"]["/rpc/loaded"]
    assert [part["name"] for part in path["get"]["parameters"]] == ["x", "y"]
    assert path["post"]["parameters"][0]["schema"] == {
        "type": "object",
        "required": ["x", "y"],
        "properties": {"x": {"format": "text", "type": "string"}, "y": {"format": "jsonb"}},
    }


def test_special_characters_in_names_are_escaped(shop: Catalog) -> None:
    old, new = swagger(shop), openapi(shop)
    assert "/Odd näme%2F%7Bx%7D~" in old["paths"]
    assert "/Odd%20n%C3%A4me%2F%7Bx%7D~" in new["paths"]
    assert list(new["components"]["schemas"]["Odd_n_me__x__"]["properties"]) == ["id", "a b", "Ü"]


def test_column_named_like_a_parameter_is_not_a_filter(shop: Catalog) -> None:
    """``limit`` in a query string is never a column."""
    parameters = references(swagger(shop)["paths"]["/purchase"]["get"]["parameters"])
    assert "rowFilter.purchase.limit" not in parameters
    assert parameters.count("limit") == 1


def test_description_allows_negative_offsets(shop: Catalog) -> None:
    """Requests may have a negative offset, but not a negative limit."""
    parameters = openapi(shop)["components"]["parameters"]
    assert parameters["offset"]["schema"] == {"type": "integer"}
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 0}


@pytest.mark.parametrize(("api_key", "names"), [(True, {"apikey", "JWT"}), (False, {"JWT"})])
def test_security_schemes_describe_the_required_credentials(
    shop: Catalog, api_key: bool, names: set[str]
) -> None:
    old = swagger(shop, require_api_key=api_key)
    assert old["securityDefinitions"].keys() == names
    assert old["security"][-1].keys() == names
    assert old["security"][0].keys() == names - {"JWT"}
    new = openapi(shop, require_api_key=api_key)
    assert new["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert ("apikey" in new["components"]["securitySchemes"]) is api_key


def test_version_3_has_separate_schemas_for_reads_and_writes(shop: Catalog) -> None:
    schemas = openapi(shop, "service_role")["components"]["schemas"]
    row, new, change = (schemas[f"purchase{kind}"] for kind in ("", ".insert", ".update"))
    assert row["properties"]["amount"] == {"type": ["number", "null"], "default": 12.5}
    assert row["properties"]["total"] == {"type": ["number", "null"], "readOnly": True}
    assert row["properties"]["status"] == {
        "type": "string",
        "enum": ["open", "it's shut"],
        "default": "it's shut",
    }
    assert row["properties"]["bought_at"] == {"type": ["string", "null"], "format": "date-time"}
    assert row["properties"]["token"] == {"type": ["string", "null"], "format": "uuid"}
    assert row["properties"]["ip"] == {"type": ["string", "null"], "format": "inet"}
    spot = {
        "type": ["object", "null"],
        "required": ["x", "label"],
        "properties": {
            "x": {"type": ["integer", "null"], "format": "int32"},
            "label": {"type": ["string", "null"]},
        },
    }
    assert row["properties"]["spot"] == spot
    assert row["properties"]["rows_seen"] == {"type": ["array", "null"], "items": spot}
    assert row["properties"]["color"] == {}
    assert row["properties"]["code"] == {
        "type": ["string", "null"],
        "maxLength": 8,
        "default": "none",
    }
    assert new["required"] == ["customer_id"]
    assert "total" not in new["properties"]
    assert "required" not in change
    assert schemas["customer.insert"]["required"] == ["email"]
    assert new["properties"]["amount"] == {"type": ["number", "null"], "default": 12.5}
    assert change["properties"]["amount"] == {"type": ["number", "null"]}, "PATCH uses no defaults"


def test_rows_contain_all_columns(shop: Catalog) -> None:
    """Columns that may be null are required in rows, but not in the body of a request."""
    schemas = openapi(shop, "service_role")["components"]["schemas"]
    for name in ("customer", "purchase", "customer_view", "frozen", "Odd_n_me__x__"):
        assert schemas[name]["required"] == list(schemas[name]["properties"])
    assert schemas["customer_view"]["properties"]["id"]["type"] == ["integer", "null"]
    assert "required" not in schemas["customer_view.insert"]
    assert "required" not in schemas["purchase.update"]


def test_columns_that_can_only_be_written_are_not_required_in_rows(shop: Catalog) -> None:
    row = openapi(shop, "authenticated")["components"]["schemas"]["writable"]
    assert row["required"] == ["id"]
    assert row["properties"]["password"] == {"type": ["string", "null"], "writeOnly": True}
    insert = openapi(shop, "authenticated")["components"]["schemas"]["writable.insert"]
    assert insert["properties"]["password"] == {"type": ["string", "null"]}


def test_columns_of_views_are_not_required_in_inserts(shop: Catalog) -> None:
    """The underlying table may have a default even if the column's domain is NOT NULL."""
    schemas = openapi(shop, "authenticated")["components"]["schemas"]
    assert schemas["writable_view"]["properties"]["level"] == {"type": "integer", "format": "int32"}
    assert "required" not in schemas["writable_view.insert"]


def test_composite_values_in_requests_may_be_incomplete(shop: Catalog) -> None:
    """PostgreSQL sets missing attributes to null. In responses, all attributes are present."""
    document = openapi(shop, "service_role")
    insert = document["components"]["schemas"]["purchase.insert"]["properties"]
    assert "required" not in insert["spot"]
    assert "required" not in insert["rows_seen"]["items"]
    body = document["paths"]["/rpc/moved"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["spot", "customer"]
    assert body["properties"]["spot"]["properties"].keys() == {"x", "label"}
    assert body["properties"]["customer"]["properties"].keys() == {"id", "email", "note"}
    assert not [each for each in body["properties"].values() if "required" in each]
    result = document["paths"]["/rpc/tabular"]["post"]["responses"]["200"]["content"]["application/json"]
    assert result["schema"]["items"]["required"] == ["n", "t"]


def test_put_is_described_if_the_key_is_writable(shop: Catalog) -> None:
    """PUT requires a filter on each key column. Its body has the key and all required columns."""
    document = openapi(shop, "service_role")
    put = document["paths"]["/purchase"]["put"]
    key = {"name": "id", "in": "query", "required": True, "schema": {"type": "string", "pattern": r"^eq\."}}
    assert put["parameters"][0] == key
    assert references(put["parameters"][1:]) == ["select", "preferPut"]
    assert put["operationId"] == "put.purchase"
    body = put["requestBody"]
    expected = {"schema": {"$ref": "#/components/schemas/purchase.put"}}
    assert body["required"] is True
    assert (
        body["content"]["application/json"]
        == body["content"]["application/x-www-form-urlencoded"]
        == expected
    )
    schema = document["components"]["schemas"]["purchase.put"]
    assert schema["required"] == ["id", "customer_id"]
    assert {"status", "extra"} <= schema["properties"].keys()
    assert "total" not in schema["properties"]
    assert list(put["responses"]) == ["204", "200", "201", "default"]
    rows = {"type": "array", "items": {"$ref": "#/components/schemas/purchase"}}
    for status in ("200", "201"):
        assert put["responses"][status]["content"]["application/json"] == {"schema": rows}
    assert "put" not in document["paths"]["/customer"], "the key is always generated"
    assert "put" not in document["paths"]["/counted"]
    assert "put" not in openapi(shop)["paths"]["/purchase"], "the role may not update purchase"
    assert "purchase.put" not in openapi(shop)["components"]["schemas"]


def test_version_3_describes_results_and_errors(shop: Catalog) -> None:
    document = openapi(shop)
    paths = document["paths"]

    def result(name: str) -> Any:
        return paths[f"/rpc/{name}"]["post"]["responses"]["200"]["content"]

    row = {"$ref": "#/components/schemas/customer"}
    assert result("add") == {"application/json": {"schema": {"type": ["integer", "null"], "format": "int32"}}}
    assert result("several") == {"application/json": {"schema": {"type": "array", "items": row}}}
    table = result("tabular")["application/json"]["schema"]
    assert list(table["items"]["properties"]) == ["n", "t"]
    assert list(result("page")) == ["text/html"]
    assert list(paths["/rpc/change"]["post"]["responses"]) == ["204", "default"]
    assert len(result("loaded")["application/json"]["schema"]["anyOf"]) == 2
    loaded = paths["/rpc/loaded"]["get"]["parameters"]
    assert [(part["name"], part["required"]) for part in loaded] == [("x", True), ("y", False)]
    for path in paths.values():
        for method, operation in path.items():
            assert "default" in operation["responses"] or operation["operationId"] == "describe", method
    error = document["components"]["schemas"]["Error"]
    assert error["properties"].keys() == {"code", "message", "details", "hint"}


def test_operation_ids_are_unique(shop: Catalog) -> None:
    paths = openapi(shop, "service_role")["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(names) == len(set(names))
    assert {"read.customer", "insert.customer", "call.add", "get.add"} <= set(names)
