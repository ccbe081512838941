"""The TypeScript types of a database, compiled with the clients that use them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.rest.typescript import database_types
from support.catalog import load_catalog
from support.memory_http import KEY
from support.node import CLIENTS, install, run, run_script
from support.service import Service, serving, token

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dataapi.catalog.model import Catalog
    from support.postgres import Server

PROGRAMS = Path(__file__).parent / "programs"
"""Client programs. Each ``@ts-expect-error`` comment precedes a statement with a type error."""

SCRIPT = Path(__file__).parent / "typed_requests.mjs"
SCHEMA = (PROGRAMS / "schema.sql").read_text()


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA), db_schemas=("public", "studio")) as running:
        yield running


@pytest.fixture(scope="module")
def catalog(service: Service) -> Catalog:
    return load_catalog(service.database.uri, "public", "studio")


def members(text: str, *path: str) -> str:
    """Return the text of a member of the type ``Database``. The path consists of member names."""
    for depth, name in enumerate(path, 1):
        indent = "  " * depth
        found = re.search(
            rf"^{indent}{re.escape(name)}: (.*?)(?=^{indent}\S|\Z)", text, re.DOTALL | re.MULTILINE
        )
        assert found is not None, f"there is no {name}"
        text = found[1]
    return text


def names(text: str, *path: str) -> list[str]:
    indent = "  " * (len(path) + 1)
    return re.findall(rf"^{indent}(\w+)\??:", members(text, *path), re.MULTILINE)


async def compiled(
    reactor: Any, packages: Path, directory: Path, types: str, programs: Mapping[str, str]
) -> str:
    """Return the compiler's errors for programs that import ``database.ts``."""
    await install(reactor, packages, *CLIENTS)
    files = {"database.ts": types, **programs}
    for name, text in files.items():
        (directory / name).write_text(text)
    (directory / "package.json").write_text('{"type": "module"}')
    (directory / "node_modules").symlink_to(packages / "node_modules")
    # skipLibCheck: supabase-js contains declarations that need the types of Node.js.
    options = ("--strict", "--noEmit", "--skipLibCheck", "--module", "nodenext", "--target", "es2022")
    compiler = str(packages / "node_modules/typescript/bin/tsc")
    paths = [str(directory / name) for name in files]
    output, errors, _ = await run(reactor, "node", compiler, *options, *paths)
    return output + errors


@pytest.mark.time_limit(180)  # the first run installs npm packages
async def test_right_programs_compile_and_wrong_statements_do_not(
    catalog: Catalog, npm_clients: Path, reactor: Any, tmp_path: Path
) -> None:
    programs = {path.name: path.read_text() for path in sorted(PROGRAMS.glob("*.ts"))}
    assert len(programs) > 12
    types = database_types(catalog, "authenticated", ("public", "studio"))
    assert await compiled(reactor, npm_clients, tmp_path, types, programs) == ""


REQUESTS = (
    'rest.from("film").select("*").order("id")',
    'rest.from("film").select("title, title_length, sequel_of(title), later:film!sequel_of(title)")',
    'rest.from("film").select("director!film_director_id_fkey(notes), second:director!co_director_id(name)")',
    'rest.from("film").select("id, sequels(title), original(title), boss(name)")',
    'rest.from("film").select("id, role(part, actor(name, initials)), actor(name)")',
    'rest.from("role").select("part, ...film(title), ...actor(actor_name:name)")',
    'rest.from("film").select("title, ...role(part)")',
    'rest.from("director").select("name, notes, passport(*)").order("id")',
    'rest.from("passport").select("number, director(name)")',
    'rest.from("film_title").select("*, director!film_director_id_fkey(name)")',
    'rest.from("film_count").select("*, director_list(*)")',
    'rest.from("film").select("title").eq("id", 2).single()',
    'rest.from("film").select("title").eq("id", 0).maybeSingle()',
    'rest.from("role").update({ part: "lead" }).eq("film_id", 2).select("*")',
    'rest.rpc("newest_film")',
    'rest.rpc("only_film")',
    'rest.rpc("films_of", { name: "Andrei" }).select("title, boss(name)")',
    'rest.rpc("statistics", { since: "2024-01-01" })',
    'rest.rpc("add", { a: 1, b: 2 })',
    'rest.rpc("describe")',
    'rest.rpc("moods")',
    'rest.rpc("import", { reels: [1, 2] })',
    'rest.rpc("initials", { person: { id: 1, name: "Ada" } })',
    'rest.schema("studio").from("room").select("*, building(*)")',
    'rest.schema("studio").rpc("largest")',
    'rest.schema("studio").rpc("films")',
)


@pytest.mark.time_limit(180)  # the first run installs npm packages
async def test_responses_have_the_types_that_the_clients_compute(
    service: Service, catalog: Catalog, npm_clients: Path, reactor: Any, tmp_path: Path
) -> None:
    await install(reactor, npm_clients, *CLIENTS)
    key = (str(npm_clients), service.url, KEY, token("authenticated"), json.dumps(REQUESTS))
    results = json.loads(await run_script(reactor, SCRIPT, *key))
    assert sum(map(bool, results)) > len(REQUESTS) - 2, "an empty result would not check its type"
    lines = ['import { rest } from "./client.js";']
    for number, (request, result) in enumerate(zip(REQUESTS, results, strict=True)):
        lines.append(f"const r{number} = await {request};")
        lines.append(f"void ({json.dumps(result)} satisfies typeof r{number}.data);")
        lines.append("// @ts-expect-error: the type is not any")
        lines.append(f"void (Symbol() satisfies typeof r{number}.data);")
    programs = {
        "client.ts": (PROGRAMS / "client.ts").read_text(),
        "responses.ts": "\n".join(lines),
    }
    types = database_types(catalog, "authenticated", ("public", "studio"))
    assert await compiled(reactor, npm_clients, tmp_path, types, programs) == ""


OTHER_SCHEMA = """
import { createClient } from "@supabase/supabase-js";
import type { Database, Enums, Tables } from "./database.js";

const client = createClient<Database, "studio">("http://127.0.0.1", "key", { db: { schema: "studio" } });
const { data } = await client.from("building").select("*").single();
const building: Tables<"building"> = data!;
const size: Enums<"size"> = building.size;
"""

NO_TABLES = """
import { createClient } from "@supabase/supabase-js";
import type { Database } from "./database.js";

const client = createClient<Database, "studio">("http://127.0.0.1", "key", { db: { schema: "studio" } });
// @ts-expect-error: the role may not use any table
client.from("building");
"""


@pytest.mark.time_limit(180)  # the first run installs npm packages
@pytest.mark.parametrize(("role", "program"), [("authenticated", OTHER_SCHEMA), ("anon", NO_TABLES)])
async def test_types_of_one_other_schema_compile(
    catalog: Catalog, npm_clients: Path, reactor: Any, tmp_path: Path, role: str, program: str
) -> None:
    types = database_types(catalog, role, ("studio",))
    assert await compiled(reactor, npm_clients, tmp_path, types, {"program.ts": program}) == ""


def test_types_contain_only_what_the_role_may_use(catalog: Catalog) -> None:
    text = database_types(catalog, "anon", ("public",))
    assert names(text, "public", "Tables") == ["film"]
    assert members(text, "public", "Tables", "film", "Insert").strip() == "never"
    assert members(text, "public", "Tables", "film", "Update").strip() == "never"
    assert "foreignKeyName" in members(text, "public", "Tables", "film", "Relationships")
    assert "director" not in members(text, "public", "Tables", "film", "Relationships")
    assert names(text, "public", "Views") == []
    assert names(text, "public", "Enums") == ["mood"]
    for hidden in ("password", "guarded", "invisible", "studio", "odd"):
        assert hidden not in text


def test_keys_over_unreadable_columns_are_absent(catalog: Catalog) -> None:
    """Embedding compares the columns of both sides, so it needs SELECT on both."""
    text = database_types(catalog, "authenticated", ("public",))
    assert members(text, "public", "Tables", "ward", "Relationships").strip() == "[]"
    assert names(text, "public", "Tables", "keeper", "Row") == ["id"]
    assert names(text, "public", "Tables", "director", "Insert") == ["born", "id", "name", "notes"]


def test_partitions_and_functions_that_cannot_be_called_are_absent(catalog: Catalog) -> None:
    text = database_types(catalog, "authenticated", ("public",))
    assert "parted" in names(text, "public", "Tables")
    assert "parted_1" not in text
    assert "nameless" not in text


def test_row_of_defaults_can_be_inserted(catalog: Catalog) -> None:
    text = database_types(catalog, "authenticated", ("public",))
    assert members(text, "public", "Tables", "tally", "Insert").split() == ["{", "id?:", "never"]


def test_columns_of_views_are_optional(catalog: Catalog) -> None:
    """The underlying table may have a default even if the column's domain is NOT NULL."""
    text = database_types(catalog, "authenticated", ("public",))
    assert "code?: string\n" in members(text, "public", "Views", "film_title", "Insert")
    assert "Insert" not in members(text, "public", "Views", "film_count")


def test_domain_with_a_cast_to_json_may_have_any_json_type(catalog: Catalog) -> None:
    text = database_types(catalog, "authenticated", ("public",))
    assert "color: Json | null\n" in members(text, "public", "Tables", "film", "Row")


def test_first_schema_is_the_default_of_parts(catalog: Catalog) -> None:
    text = database_types(catalog, "authenticated", ("studio", "public"))
    assert 'keyof Relations<"studio"> | Elsewhere' in text
    assert text.index("\n  public: {") < text.index("\n  studio: {")


def test_types_refer_to_other_schemas_only_if_they_are_included(catalog: Catalog) -> None:
    text = database_types(catalog, "authenticated", ("studio",))
    assert 'Database["public"]' not in text
    assert members(text, "studio", "Functions", "films").endswith("Returns: Record<string, unknown>[]\n")


def test_equal_schemas_have_equal_types(catalog: Catalog, server: Server) -> None:
    """The types depend neither on the creation order of objects nor on the order of columns."""
    moved = SCHEMA.replace("create table actor (id integer primary key, name text not null);", "")
    first = "create table actor (name text not null, id integer primary key);"
    database = server.create_database(first + moved)
    other = load_catalog(database.uri, "public", "studio")
    server.drop_database(database)
    for role in ("anon", "authenticated"):
        expected = database_types(catalog, role, ("public", "studio"))
        assert database_types(other, role, ("public", "studio")) == expected
        assert database_types(catalog, role, ("public", "studio")) == expected


def test_role_that_cannot_be_assumed_has_no_types(catalog: Catalog) -> None:
    with pytest.raises(LookupError, match="nobody_at_all"):
        database_types(catalog, "nobody_at_all", ("public",))


def test_extension_types_are_strings_only_if_their_values_are_text(server: Server) -> None:
    """Casts to JSON determine the form of other values: those of ``hstore`` are objects."""
    server.require("citext", "hstore")
    database = server.create_database(
        "create extension citext; create extension hstore;"
        " create table doc (name citext, tags hstore, n money); grant select on doc to anon"
    )
    text = database_types(load_catalog(database.uri), "anon", ("public",))
    server.drop_database(database)
    row = members(text, "public", "Tables", "doc", "Row")
    assert [line.strip() for line in row.splitlines()[1:]] == [
        "n: string | null",
        "name: string | null",
        "tags: unknown",
    ]
