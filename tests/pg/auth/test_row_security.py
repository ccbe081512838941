"""Effects of grants and row level security on introspection and data.

All tables have the same columns and rows. Their names describe the grants of the role ``anon``. Row 1 belongs
to the caller, row 2 to another user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

COLUMNS = ("id", "owner", "word", "secret")
OWN, OTHERS = 1, 2


@dataclass(frozen=True)
class Case:
    """A table with its grants and policies, and the expected behavior for ``anon``.

    :ivar setup: SQL with ``{t}`` for the table.
    :ivar sees: IDs of the rows that the role can read, None if the table is hidden.
    :ivar columns: columns of the object type.
    :ivar inserts, updates: columns of the input types, empty if the field does not exist.
    :ivar deletes: whether the delete field exists.
    :ivar inserted: SQLSTATEs of inserting a row for the caller and a row for another user, None for success.
    :ivar updated, deleted: IDs of the rows that an unfiltered change affects, or the SQLSTATE.
    :ivar moved: SQLSTATE of assigning the caller's row to another user, None for success.
    """

    name: str
    setup: str
    sees: tuple[int, ...] | None = (OWN, OTHERS)
    columns: tuple[str, ...] = COLUMNS
    inserts: tuple[str, ...] = COLUMNS
    updates: tuple[str, ...] = COLUMNS
    deletes: bool = True
    inserted: tuple[str | None, str | None] = (None, None)
    updated: tuple[int, ...] | str = (OWN, OTHERS)
    deleted: tuple[int, ...] | str = (OWN, OTHERS)
    moved: str | None = None
    hidden: bool = False


def _policy(*commands: str) -> str:
    """Return SQL for policies that allow commands on the caller's own rows."""
    texts = ["alter table {t} enable row level security; grant all on {t} to anon;"]
    for command in commands:
        clause = {"insert": "with check", "update": "using (owner = me()) with check"}.get(command, "using")
        texts.append(f"create policy {command}_own on {{t}} for {command} {clause} (owner = me());")
    return " ".join(texts)


NOTHING: dict[str, Any] = {
    "sees": None,
    "columns": (),
    "inserts": (),
    "updates": (),
    "deletes": False,
    "hidden": True,
}
DENIED = "42501"
CASES = [
    Case("no_grant", "", **NOTHING),
    Case("write_only", "grant insert, update, delete on {t} to anon;", **NOTHING),
    Case("revoked", "grant all on {t} to anon; revoke all on {t} from anon;", **NOTHING),
    Case("all_granted", "grant all on {t} to anon;"),
    Case("to_public", "grant all on {t} to public;"),
    Case("read_only", "grant select on {t} to anon;", inserts=(), updates=(), deletes=False),
    Case("insert_only", "grant select, insert on {t} to anon;", updates=(), deletes=False),
    Case("update_only", "grant select, update on {t} to anon;", inserts=(), deletes=False),
    Case("delete_only", "grant select, delete on {t} to anon;", inserts=(), updates=()),
    Case("read_columns", "grant select (id, owner, word) on {t} to anon;",
         columns=("id", "owner", "word"), inserts=(), updates=(), deletes=False),
    Case("read_no_key", "grant select (owner, word) on {t} to anon; grant update on {t} to anon;",
         columns=("owner", "word"), inserts=(), deletes=False),
    Case("write_columns",
         "grant select on {t} to anon; grant insert (id, owner), update (word) on {t} to anon;",
         inserts=("id", "owner"), updates=("word",), deletes=False),
    Case("hidden_but_written",
         "grant select (id, owner, word) on {t} to anon; grant insert, update, delete on {t} to anon;",
         columns=("id", "owner", "word")),
    Case("no_policy", _policy(), sees=(), inserted=(DENIED, DENIED), updated=(), deleted=()),
    Case("select_policy", _policy("select"), sees=(OWN,), inserted=(DENIED, DENIED), updated=(), deleted=()),
    Case("insert_policy", _policy("insert"), sees=(), inserted=(DENIED, DENIED), updated=(), deleted=()),
    Case("select_insert_policy", _policy("select", "insert"), sees=(OWN,), inserted=(None, DENIED),
    updated=(), deleted=()),
    Case("update_policy", _policy("update"), sees=(), inserted=(DENIED, DENIED), updated=(), deleted=()),
    Case("select_update_policy", _policy("select", "update"), sees=(OWN,), inserted=(DENIED, DENIED),
         updated=(OWN,), deleted=(), moved=DENIED),
    Case("select_delete_policy", _policy("select", "delete"), sees=(OWN,), inserted=(DENIED, DENIED),
         updated=(), deleted=(OWN,)),
    Case("all_policy", _policy("all"), sees=(OWN,), inserted=(None, DENIED), updated=(OWN,), deleted=(OWN,),
    moved=DENIED),
    Case("read_all_write_own", _policy("insert", "update", "delete")
         + " create policy readable on {t} for select using (true);",
         inserted=(None, DENIED), updated=(OWN,), deleted=(OWN,), moved=DENIED),
    Case("restrictive", _policy("all") + " create policy no_b on {t} as restrictive using (word is "
    "distinct from 'b');"
         " create policy everyone on {t} using (true);", sees=(OWN,), updated=(OWN,), deleted=(OWN,)),
    Case("check_only_on_write", "alter table {t} enable row level security; grant all on {t} to anon;"
         " create policy p on {t} using (true) with check (owner = me());",
         inserted=(None, DENIED), updated=DENIED, moved=DENIED),
    Case("policy_for_others", "alter table {t} enable row level security; grant all on {t} to anon;"
         " create policy p on {t} to authenticated using (true);",
         sees=(), inserted=(DENIED, DENIED), updated=(), deleted=()),
]  # fmt: skip

SETUP = """
comment on schema public is '@graphql({"introspection": true})';
create function me() returns text stable language sql
    as $$ select coalesce(current_setting('request.jwt.claims', true)::json ->> 'sub', 'me') $$;
create schema private;
create table private.inside (id int primary key);
grant all on private.inside to anon;
"""
TABLE = """
create table {t} (id int primary key, owner text default me(), word text, secret text default 'secret');
insert into {t} values (1, 'me', 'a', 'secret'), (2, 'you', 'b', 'secret');
grant all on {t} to service_role;
"""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    tables = [(TABLE + case.setup).replace("{t}", case.name) for case in CASES]
    database = server.create_database(SETUP, *tables)
    with serving(reactor, database, db_schemas=("public", "private")) as running:
        yield running


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest, service: Service) -> Case:
    selected: Case = request.param
    service.database.execute(
        f"delete from {selected.name}; insert into {selected.name} values"
        " (1, 'me', 'a', 'secret'), (2, 'you', 'b', 'secret')"
    )
    return selected


def rows(service: Service, case: Case) -> list[Any]:
    """Return the table's rows, bypassing row level security."""
    return service.database.execute(f"select id, owner, word, secret from {case.name} order by id")


def error_code(response: Any) -> str | None:
    """Return the SQLSTATE of the only error, or None if there is none."""
    if "errors" not in response.body:
        return None
    [error] = response.errors
    assert response.body["data"] is None
    code: str = error["extensions"]["code"]
    return code


async def test_introspection_shows_only_what_the_role_may_use(service: Service, case: Case) -> None:
    """Types, input fields and entry points match the grants, and nothing else mentions the table."""
    name = case.name
    response = await service.data(
        f"""{{ object: __type(name: "{name}") {{ fields {{ name }} }}
            insert: __type(name: "{name}InsertInput") {{ inputFields {{ name }} }}
            update: __type(name: "{name}UpdateInput") {{ inputFields {{ name }} }}
            filter: __type(name: "{name}Filter") {{ inputFields {{ name }} }}
            order: __type(name: "{name}OrderBy") {{ inputFields {{ name }} }}
            __schema {{ types {{ name }} queryType {{ fields {{ name }} }} mutationType {{ fields {{ name
            }} }} }} }}""",
        check=False,
    )

    def names(part: str, member: str) -> set[str]:
        return set() if response[part] is None else {item["name"] for item in response[part][member]}

    assert names("object", "fields") - {"nodeId"} == set(case.columns)
    assert ("nodeId" in names("object", "fields")) is ("id" in case.columns)
    assert names("insert", "inputFields") == set(case.inserts)
    assert names("update", "inputFields") == set(case.updates)
    assert names("filter", "inputFields") - {"and", "or", "not", "nodeId"} == set(case.columns)
    assert names("order", "inputFields") == set(case.columns)
    shown = response["__schema"]
    fields = {item["name"] for root in ("queryType", "mutationType") for item in shown[root]["fields"]}
    assert (f"{name}Collection" in fields) is not case.hidden
    assert (f"insertInto{name}Collection" in fields) is bool(case.inserts)
    assert (f"update{name}Collection" in fields) is bool(case.updates)
    assert (f"deleteFrom{name}Collection" in fields) is case.deletes
    mentioned = {item["name"] for item in shown["types"] if item["name"].startswith(name)}
    assert bool(mentioned) is not case.hidden


async def test_role_reads_only_permitted_rows_and_columns(service: Service, case: Case) -> None:
    readable = " ".join(case.columns) or "id"
    response = await service.ask(f"{{ {case.name}Collection {{ edges {{ node {{ {readable} }} }} }} }}")
    if case.hidden:
        assert f"{case.name}Collection" in response.error
        assert response.messages == (), "no statement was sent"
        return
    values = {OWN: ("me", "a", "secret"), OTHERS: ("you", "b", "secret")}
    full = [dict(zip(COLUMNS, (number, *values[number]), strict=True)) for number in case.sees or ()]
    expected = [{name: row[name] for name in case.columns} for row in full]
    returned = nodes(response.data[f"{case.name}Collection"])
    assert sorted(returned, key=str) == sorted(expected, key=str)
    for name in set(COLUMNS) - set(case.columns):
        for usage in (
            f"{{ edges {{ node {{ {name} }} }} }}",
            f"(filter: {{{name}: {{is: NULL}}}}) {{ __typename }}",
        ):
            response = await service.ask(f"{{ {case.name}Collection{usage} }}")
            assert name in response.error
            assert response.messages == ()


async def test_role_inserts_only_permitted_rows(service: Service, case: Case) -> None:
    before = rows(service, case)
    for number, owner, expected in ((3, "me", case.inserted[0]), (4, "you", case.inserted[1])):
        text = (
            f'mutation {{ insertInto{case.name}Collection(objects: {{id: {number}, owner: "{owner}"}}) '
            f"{{ affectedCount records {{ {case.columns[0] if case.columns else 'id'} }} }} }}"
        )
        response = await service.ask(text)
        if not case.inserts:
            assert f"insertInto{case.name}Collection" in response.errors[0]["message"]
            assert response.messages == ()
        else:
            assert error_code(response) == expected
            if expected is None:
                before = [*before, (number, owner, None, "secret")]
        assert rows(service, case) == before
    if case.inserts and "secret" not in case.inserts:
        response = await service.ask(
            f'mutation {{ insertInto{case.name}Collection(objects: {{secret: "x"}}) {{ affectedCount }} }}'
        )
        assert "secret" in response.error


async def test_role_updates_only_permitted_rows(service: Service, case: Case) -> None:
    fields = "affectedCount records { word }"
    text = f'mutation {{ r: update{case.name}Collection(set: {{word: "new"}}, atMost: 5) {{ {fields} }} }}'
    response = await service.ask(text)
    if not case.updates:
        assert f"update{case.name}Collection" in response.errors[0]["message"]
        assert response.messages == ()
        return
    changed = [row[0] for row in rows(service, case) if row[2] == "new"]
    if isinstance(case.updated, str):
        assert error_code(response) == case.updated
        assert changed == []
        return
    assert response.data["r"]["affectedCount"] == len(case.updated)
    assert changed == list(case.updated)
    assert response.data["r"]["records"] == [{"word": "new"}] * len(case.updated)


async def test_role_cannot_reassign_rows_without_permission(service: Service, case: Case) -> None:
    """The ``with check`` expression of the update policy decides."""
    if "owner" not in case.updates or "id" not in case.columns or case.updated == ():
        return
    response = await service.ask(
        f'mutation {{ update{case.name}Collection(set: {{owner: "you"}}, filter: {{id: {{eq: 1}}}}) {{ '
        "affectedCount } }"
    )
    assert error_code(response) == case.moved
    assert rows(service, case)[0][1] == ("you" if case.moved is None else "me")


async def test_role_deletes_only_permitted_rows(service: Service, case: Case) -> None:
    response = await service.ask(
        f"mutation {{ r: deleteFrom{case.name}Collection(atMost: 5) {{ affectedCount records {{ word }} }} }}"
    )
    left = [row[0] for row in rows(service, case)]
    if not case.deletes:
        assert f"deleteFrom{case.name}Collection" in response.errors[0]["message"]
        assert response.messages == ()
        assert left == [OWN, OTHERS]
        return
    assert response.data["r"]["affectedCount"] == len(case.deleted)
    assert left == [number for number in (OWN, OTHERS) if number not in case.deleted]


async def test_service_role_bypasses_policies(service: Service, case: Case) -> None:
    data = await service.data(
        f"""mutation {{ a: insertInto{case.name}Collection(objects: {{id: 9, owner: "x"}}) {{ affectedCount }}
            b: update{case.name}Collection(set: {{word: "w"}}, atMost: 3) {{ affectedCount }}
            c: deleteFrom{case.name}Collection(atMost: 3) {{ records {{ id }} }} }}""",
        role="service_role",
    )
    assert (data["a"]["affectedCount"], data["b"]["affectedCount"], len(data["c"]["records"])) == (1, 3, 3)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("insert_policy", 'insertIntoinsert_policyCollection(objects: {id: 3, owner: "me"})'),
        ("update_policy", 'updateupdate_policyCollection(set: {word: "new"})'),
    ],
)
async def test_change_without_returned_rows_needs_no_select_policy(
    service: Service, table: str, change: str
) -> None:
    """PostgreSQL applies select policies only if a filter or returned records read rows."""
    service.database.execute(f"delete from {table}; insert into {table} values (1, 'me'), (2, 'you')")
    assert (await service.data(f"mutation {{ r: {change} {{ affectedCount }} }}"))["r"] == {
        "affectedCount": 1
    }
    service.database.execute(f"delete from {table}; insert into {table} values (1, 'me'), (2, 'you')")
    response = await service.ask(f"mutation {{ r: {change} {{ affectedCount records {{ id }} }} }}")
    if table == "insert_policy":
        assert error_code(response) == DENIED
    else:
        assert response.data["r"] == {"affectedCount": 0, "records": []}


async def test_hidden_rows_cannot_be_fetched_by_node_id(service: Service) -> None:
    for table in ("no_grant", "all_policy"):
        service.database.execute(f"delete from {table}; insert into {table} values (1, 'me'), (2, 'you')")
    [own] = await service.rows("no_grant", "nodeId", "first: 1", role="service_role")
    query = "query($id: ID!) { node(nodeId: $id) { __typename } }"
    assert (await service.data(query, {"id": own["nodeId"]}))["node"] is None
    assert (await service.data(query, {"id": own["nodeId"]}, role="service_role"))["node"] is not None
    [_, theirs] = await service.rows("all_policy", "nodeId", role="service_role")
    assert (await service.data(query, {"id": theirs["nodeId"]}))["node"] is None


async def test_schema_without_usage_is_hidden_despite_table_grants(service: Service) -> None:
    assert "insideCollection" in (await service.ask("{ insideCollection { __typename } }")).error
    await service.execute("grant usage on schema private to anon")
    assert await service.ids("inside") == []
    assert "insertIntoinsideCollection" in service.schema().object_type("Mutation").fields
    await service.execute("revoke usage on schema private from anon")
    assert "insideCollection" in (await service.ask("{ insideCollection { __typename } }")).error


async def test_policies_use_the_claims_of_the_request(service: Service) -> None:
    service.database.execute("delete from all_policy")
    await service.execute("grant all on all_policy to authenticated")
    await service.data(
        "mutation { insertIntoall_policyCollection(objects: {id: 5}) { affectedCount } }",
        role="authenticated",
    )
    assert service.database.execute("select id, owner from all_policy") == [(5, "a user of authenticated")]
    assert await service.ids("all_policy", role="authenticated") == [5]
    assert await service.ids("all_policy") == [], "the next request does not run as that user"
    await service.execute("revoke all on all_policy from authenticated")
