"""Grants and row level security: what each role sees and can change, in introspection as well as in data.

Every table has the same columns and rows; its name says what the role ``anon`` was given.
Its row 1 is the caller's own, row 2 somebody else's.
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
    """A table, what ``anon`` was given of it, and what that must come to.

    :ivar setup: SQL; ``{t}`` is the table.
    :ivar sees: the ids of the rows that it reads, None where the table is hidden.
    :ivar columns: those in the object type.
    :ivar inserts, updates: the columns in the input types; empty without the field.
    :ivar deletes: whether there is a field.
    :ivar inserted: of an own row and of another's, the SQLSTATE that refuses it, None where it is taken.
    :ivar updated, deleted: the ids of the rows that a change of all rows affects, or the SQLSTATE.
    :ivar moved: what comes of giving the own row to another: the SQLSTATE, or None.
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
    """Return policies on the own row for commands, such as ``select`` or ``update``."""
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
    found: Case = request.param
    service.database.execute(
        f"delete from {found.name}; insert into {found.name} values"
        " (1, 'me', 'a', 'secret'), (2, 'you', 'b', 'secret')"
    )
    return found


def rows(service: Service, case: Case) -> list[Any]:
    """Return the table's rows as the superuser sees them."""
    return service.database.execute(f"select id, owner, word, secret from {case.name} order by id")


def refusal(answer: Any) -> str | None:
    """Return the SQLSTATE of an answer's only error, None when it has none."""
    if "errors" not in answer.body:
        return None
    [error] = answer.errors
    assert answer.body["data"] is None
    code: str = error["extensions"]["code"]
    return code


async def test_introspection_shows_what_the_role_may_do(service: Service, case: Case) -> None:
    """Types, their columns, the inputs' columns and the entry points; nothing else names the table."""
    name = case.name
    answer = await service.data(
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
        return set() if answer[part] is None else {item["name"] for item in answer[part][member]}

    assert names("object", "fields") - {"nodeId"} == set(case.columns)
    assert ("nodeId" in names("object", "fields")) is ("id" in case.columns)
    assert names("insert", "inputFields") == set(case.inserts)
    assert names("update", "inputFields") == set(case.updates)
    assert names("filter", "inputFields") - {"and", "or", "not", "nodeId"} == set(case.columns)
    assert names("order", "inputFields") == set(case.columns)
    shown = answer["__schema"]
    fields = {item["name"] for root in ("queryType", "mutationType") for item in shown[root]["fields"]}
    assert (f"{name}Collection" in fields) is not case.hidden
    assert (f"insertInto{name}Collection" in fields) is bool(case.inserts)
    assert (f"update{name}Collection" in fields) is bool(case.updates)
    assert (f"deleteFrom{name}Collection" in fields) is case.deletes
    mentioned = {item["name"] for item in shown["types"] if item["name"].startswith(name)}
    assert bool(mentioned) is not case.hidden


async def test_a_role_reads_the_rows_and_columns_that_it_may(service: Service, case: Case) -> None:
    readable = " ".join(case.columns) or "id"
    answer = await service.ask(f"{{ {case.name}Collection {{ edges {{ node {{ {readable} }} }} }} }}")
    if case.hidden:
        assert f"{case.name}Collection" in answer.error
        assert answer.messages == (), "nothing was asked of the database"
        return
    values = {OWN: ("me", "a", "secret"), OTHERS: ("you", "b", "secret")}
    full = [dict(zip(COLUMNS, (number, *values[number]), strict=True)) for number in case.sees or ()]
    expected = [{name: row[name] for name in case.columns} for row in full]
    found = nodes(answer.data[f"{case.name}Collection"])
    assert sorted(found, key=str) == sorted(expected, key=str)
    for name in set(COLUMNS) - set(case.columns):
        for place in (
            f"{{ edges {{ node {{ {name} }} }} }}",
            f"(filter: {{{name}: {{is: NULL}}}}) {{ __typename }}",
        ):
            answer = await service.ask(f"{{ {case.name}Collection{place} }}")
            assert name in answer.error
            assert answer.messages == ()


async def test_a_role_inserts_the_rows_that_it_may(service: Service, case: Case) -> None:
    before = rows(service, case)
    for number, owner, expected in ((3, "me", case.inserted[0]), (4, "you", case.inserted[1])):
        text = (
            f'mutation {{ insertInto{case.name}Collection(objects: {{id: {number}, owner: "{owner}"}}) '
            f"{{ affectedCount records {{ {case.columns[0] if case.columns else 'id'} }} }} }}"
        )
        answer = await service.ask(text)
        if not case.inserts:
            assert f"insertInto{case.name}Collection" in answer.errors[0]["message"]
            assert answer.messages == ()
        else:
            assert refusal(answer) == expected
            if expected is None:
                before = [*before, (number, owner, None, "secret")]
        assert rows(service, case) == before
    if case.inserts and "secret" not in case.inserts:
        answer = await service.ask(
            f'mutation {{ insertInto{case.name}Collection(objects: {{secret: "x"}}) {{ affectedCount }} }}'
        )
        assert "secret" in answer.error


async def test_a_role_updates_the_rows_that_it_may(service: Service, case: Case) -> None:
    fields = "affectedCount records { word }"
    text = f'mutation {{ r: update{case.name}Collection(set: {{word: "new"}}, atMost: 5) {{ {fields} }} }}'
    answer = await service.ask(text)
    if not case.updates:
        assert f"update{case.name}Collection" in answer.errors[0]["message"]
        assert answer.messages == ()
        return
    changed = [row[0] for row in rows(service, case) if row[2] == "new"]
    if isinstance(case.updated, str):
        assert refusal(answer) == case.updated
        assert changed == []
        return
    assert answer.data["r"]["affectedCount"] == len(case.updated)
    assert changed == list(case.updated)
    assert answer.data["r"]["records"] == [{"word": "new"}] * len(case.updated)


async def test_a_role_cannot_give_rows_away_that_it_may_not(service: Service, case: Case) -> None:
    """``with check`` of an update."""
    if "owner" not in case.updates or "id" not in case.columns or case.updated == ():
        return
    answer = await service.ask(
        f'mutation {{ update{case.name}Collection(set: {{owner: "you"}}, filter: {{id: {{eq: 1}}}}) {{ '
        "affectedCount } }"
    )
    assert refusal(answer) == case.moved
    assert rows(service, case)[0][1] == ("you" if case.moved is None else "me")


async def test_a_role_deletes_the_rows_that_it_may(service: Service, case: Case) -> None:
    answer = await service.ask(
        f"mutation {{ r: deleteFrom{case.name}Collection(atMost: 5) {{ affectedCount records {{ word }} }} }}"
    )
    left = [row[0] for row in rows(service, case)]
    if not case.deletes:
        assert f"deleteFrom{case.name}Collection" in answer.errors[0]["message"]
        assert answer.messages == ()
        assert left == [OWN, OTHERS]
        return
    assert answer.data["r"]["affectedCount"] == len(case.deleted)
    assert left == [number for number in (OWN, OTHERS) if number not in case.deleted]


async def test_service_role_passes_policies(service: Service, case: Case) -> None:
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
async def test_a_change_that_reads_nothing_needs_no_policy_for_reading(
    service: Service, table: str, change: str
) -> None:
    """PostgreSQL's rule: a policy for reading counts where a filter or the records read."""
    service.database.execute(f"delete from {table}; insert into {table} values (1, 'me'), (2, 'you')")
    assert (await service.data(f"mutation {{ r: {change} {{ affectedCount }} }}"))["r"] == {
        "affectedCount": 1
    }
    service.database.execute(f"delete from {table}; insert into {table} values (1, 'me'), (2, 'you')")
    answer = await service.ask(f"mutation {{ r: {change} {{ affectedCount records {{ id }} }} }}")
    if table == "insert_policy":
        assert refusal(answer) == DENIED
    else:
        assert answer.data["r"] == {"affectedCount": 0, "records": []}


async def test_a_hidden_table_is_not_reached_by_its_node_id(service: Service) -> None:
    for table in ("no_grant", "all_policy"):
        service.database.execute(f"delete from {table}; insert into {table} values (1, 'me'), (2, 'you')")
    [own] = await service.rows("no_grant", "nodeId", "first: 1", role="service_role")
    query = "query($id: ID!) { node(nodeId: $id) { __typename } }"
    assert (await service.data(query, {"id": own["nodeId"]}))["node"] is None
    assert (await service.data(query, {"id": own["nodeId"]}, role="service_role"))["node"] is not None
    [_, theirs] = await service.rows("all_policy", "nodeId", role="service_role")
    assert (await service.data(query, {"id": theirs["nodeId"]}))["node"] is None


async def test_a_schema_without_usage_is_hidden_whatever_its_tables_grant(service: Service) -> None:
    assert "insideCollection" in (await service.ask("{ insideCollection { __typename } }")).error
    await service.execute("grant usage on schema private to anon")
    assert await service.ids("inside") == []
    assert "insertIntoinsideCollection" in service.schema().object_type("Mutation").fields
    await service.execute("revoke usage on schema private from anon")
    assert "insideCollection" in (await service.ask("{ insideCollection { __typename } }")).error


async def test_claims_decide_what_policies_see(service: Service) -> None:
    service.database.execute("delete from all_policy")
    await service.execute("grant all on all_policy to authenticated")
    await service.data(
        "mutation { insertIntoall_policyCollection(objects: {id: 5}) { affectedCount } }",
        role="authenticated",
    )
    assert service.database.execute("select id, owner from all_policy") == [(5, "a user of authenticated")]
    assert await service.ids("all_policy", role="authenticated") == [5]
    assert await service.ids("all_policy") == [], "the next request is not that user's"
    await service.execute("revoke all on all_policy from authenticated")
