"""Functions as fields: arguments, overloads, results, callers (docs/reference/graphql.md, Functions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
comment on schema public is '@graphql({"introspection": true})';
create type mood as enum ('sad', 'so so', 'ok');
comment on type mood is '@graphql({"mappings": {"so so": "SO_SO"}})';
create type pair as (x int, label text, moods mood[]);
create domain positive as int check (value > 0);
create table account (id serial primary key, email text not null, mood mood default 'ok', hidden text);
create table post (id serial primary key, account_id int not null references account, title text not null);
comment on table account is '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
comment on table post is '@graphql({"totalCount": {"enabled": true}})';
create table keyless (word text);
create table calls (id serial primary key, word text);
grant all on account, post, calls to anon;
grant all on all sequences in schema public to anon;
create function post_count(account) returns bigint stable language sql
    as 'select count(*) from post where account_id = $1.id';

-- by volatility
create function add_stable(a int, b int) returns int stable language sql as 'select a + b';
create function add_immutable(a int, b int) returns int immutable language sql as 'select a + b';
create function add_volatile(a int, b int) returns int language sql as 'select a + b';

-- arguments
create function greet(name text default 'you, there', greeting text default 'Hello; "hi"',
    times int default 1)
    returns text immutable language sql as $$ select repeat(greeting || ' ' || name, times) $$;
create function nullable(value text default null) returns text immutable language sql
    as $$ select coalesce(value, 'was null') $$;
create function now_or(moment timestamptz default now() - interval '1 day') returns boolean
    stable language sql
    as 'select moment < now()';
create function total(numbers int[], big bigint[] default '{1,2}') returns bigint immutable language sql
    as 'select (select sum(n) from unnest(numbers) n) + (select sum(n) from unnest(big) n)';
create function describe_mood(feeling mood, others mood[] default '{}') returns text immutable language sql
    as $$ select feeling::text || ':' || array_to_string(others, ',', '-') $$;
create function describe_pair(p pair) returns text immutable language sql
    as $$ select coalesce((p).x::text, 'none') || (p).label || coalesce((p).moods::text, '') $$;
create function half(n positive) returns int immutable language sql as 'select n / 2';
create function document(body jsonb) returns text immutable language sql as $$ select body ->> 'k' $$;
create function mixed("Case" int, "select" int) returns int immutable language sql as 'select $1 - $2';

-- overloads
create function find(id int) returns text immutable language sql as $$ select 'by id ' || id $$;
create function find(email text) returns text immutable language sql as $$ select 'by email ' || email $$;
create function find(id int, email text) returns text immutable language sql as
    $$ select 'by both ' || id || email $$;
create function twin(v text) returns text immutable language sql as $$ select 'text ' || v $$;
create function twin(v mood) returns text immutable language sql as $$ select 'mood ' || v $$;

-- results
create function give_mood() returns mood immutable language sql as $$ select 'so so'::mood $$;
create function give_moods() returns mood[] immutable language sql as $$ select '{sad,so so,null}'::mood[] $$;
create function give_big() returns bigint immutable language sql as 'select 9223372036854775807';
create function give_bigs() returns bigint[] immutable language sql as
    'select array[1, null, 9223372036854775807]';
create function give_json() returns jsonb immutable language sql as $$ select '{"a": 1}'::jsonb $$;
create function give_set(n int) returns setof int immutable language sql as 'select generate_series(1, n)';
create function give_mood_set() returns setof mood immutable language sql
    as $$ select unnest('{sad,so so}'::mood[]) $$;
create function give_null() returns text immutable language sql as 'select null::text';
create function give_null_array() returns int[] immutable language sql as 'select null::int[]';
create function account_of(id int) returns account stable language sql
    as 'select a from account a where a.id = $1';
create function one_account() returns setof account rows 1 stable language sql as
    'select * from account order by id limit 1';
create function accounts_like(pattern text) returns setof account stable language sql
    as 'select * from account where email like pattern';
create function log_void(word text) returns void language sql as 'insert into calls (word) values (word)';

-- changes
create function tick(word text) returns mood language plpgsql as $$
begin insert into calls (word) values (tick.word); return 'so so'; end $$;
create function ticks(word text) returns mood[] language plpgsql as $$
begin insert into calls (word) values (ticks.word); return '{so so,ok}'; end $$;
create function create_account(email text, titles text[]) returns account language plpgsql as $$
declare made account;
begin
    insert into account (email) values (create_account.email) returning * into made;
    insert into post (account_id, title) select made.id, t from unnest(titles) t;
    return made;
end $$;
create function create_accounts(emails text[]) returns setof account language plpgsql as $$
begin
    insert into calls (word) values ('create_accounts');
    return query insert into account (email) select e from unnest(emails) e returning *;
end $$;
create function made_up() returns account language sql as
    $$ select row(-1, E'a "quoted", \\\\ one', null, 'x')::account $$;
create function nobody() returns account language sql as 'select null::account';

-- not offered
create function n_variadic(variadic a int[]) returns int immutable language sql as 'select 1';
create function n_nameless(int) returns int immutable language sql as 'select 1';
create function n_record() returns record immutable language sql as 'select 1, 2';
create function n_table() returns table (a int, b int) immutable language sql as 'select 1, 2';
create function n_out(out a int, out b int) immutable language sql as 'select 1, 2';
create function n_trigger() returns trigger language plpgsql as 'begin return new; end';
create function n_clash(filter text) returns setof account stable language sql as 'select * from account';
create function n_keyless() returns setof keyless stable language sql as 'select * from keyless';
create function n_revoked() returns int immutable language sql as 'select 1';
revoke execute on function n_revoked() from public;
create function "n weird name"() returns int immutable language sql as 'select 1';
create function n_weird_argument("a b" int) returns int immutable language sql as 'select 1';
create procedure n_procedure() language sql as 'select 1';
create aggregate n_aggregate(int) (sfunc = int4pl, stype = int);

-- a schema with inflection
create schema inflected;
comment on schema inflected is '@graphql({"inflect_names": true})';
grant usage on schema inflected to anon;
create table inflected.account_holder (id serial primary key, first_name text, _private_note text);
grant all on inflected.account_holder to anon;
grant all on inflected.account_holder_id_seq to anon;
create function inflected.add_all_numbers(first_number int, second_number int default 2) returns int
    immutable language sql as 'select first_number + second_number';
create function inflected.make_holder(first_name text) returns inflected.account_holder language sql
    as 'insert into inflected.account_holder (first_name) values (make_holder.first_name) returning *';

-- failures
create function refuse(word text) returns int language plpgsql as $$
begin
    insert into calls (word) values (word);
    raise exception 'refused: %', word using errcode = 'AB123', detail = 'the detail', hint = 'the hint';
end $$;
create function divide(a int, b int) returns int immutable language sql as 'select a / b';
"""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database(SCHEMA)
    with serving(reactor, database, db_schemas=("public", "inflected")) as running:
        yield running


RESET = """
truncate account, post, calls restart identity;
insert into account (email, mood) values ('a@x', 'sad'), ('b@x', 'so so'), ('c@y', null);
insert into post (account_id, title) values (1, 'first');
"""


async def call(api: Service, text: str, variables: dict[str, Any] | None = None, head: str = "query") -> Any:
    [value] = (await api.data(f"{head} {{ {text} }}", variables)).values()
    return value


def test_volatility_decides_the_root(api: Service) -> None:
    query, mutation = (set(api.schema().object_type(name).fields) for name in ("Query", "Mutation"))
    assert {"add_stable", "add_immutable"} <= query
    assert "add_volatile" in mutation
    assert not {"add_stable", "add_immutable"} & mutation
    assert "add_volatile" not in query


@pytest.mark.parametrize("name", ["add_stable", "add_immutable", "add_volatile"])
async def test_arguments_are_passed_by_name(api: Service, name: str) -> None:
    head = "mutation" if name == "add_volatile" else "query"
    assert await call(api, f"{name}(b: 1, a: 41)", head=head) == 42
    query = f"{head}($a: Int!, $b: Int!) {{ r: {name}(b: $b, a: $a) }}"
    assert (await api.data(query, {"a": 1, "b": 2})) == {"r": 3}
    assert "is required" in (await api.ask(f"{head} {{ {name}(a: 1) }}")).error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("greet", 'Hello; "hi" you, there'),
        ('greet(name: "Ann")', 'Hello; "hi" Ann'),
        ('greet(times: 2, greeting: "x")', "x you, therex you, there"),
        ("greet(name: null)", None),
        ("nullable", "was null"),
        ("nullable(value: null)", "was null"),
        ('nullable(value: "v")', "v"),
        ("now_or", True),
        ('now_or(moment: "2999-01-01T00:00:00Z")', False),
        ("total(numbers: [1, 2])", "6"),
        ('total(numbers: 5, big: ["9007199254740993"])', "9007199254740998"),
        ("total(numbers: [], big: [])", None),
        ("describe_mood(feeling: SO_SO)", "so so:"),
        ("describe_mood(feeling: sad, others: [SO_SO, null, ok])", "sad:so so,-,ok"),
        ('describe_pair(p: {x: 1, label: "l", moods: ["so so", "ok"]})', '1l{"so so",ok}'),
        ("describe_pair(p: \"{\\\"label\\\": \\\"'; --\\\"}\")", "none'; --"),
        ("half(n: 8)", 4),
        ('document(body: "{\\"k\\": \\"v\\"}")', "v"),
        ("mixed(Case: 5, select: 3)", 2),
        ("give_mood", "SO_SO"),
        ("give_moods", ["sad", "SO_SO", None]),
        ("give_big", "9223372036854775807"),
        ("give_bigs", ["1", None, "9223372036854775807"]),
        ("give_json", '{"a": 1}'),
        ("give_set(n: 3)", [1, 2, 3]),
        ("give_set(n: 0)", []),
        ("give_mood_set", ["sad", "SO_SO"]),
        ("give_null", None),
        ("give_null_array", None),
        ("account_of(id: 2) { email mood post_count }", {"email": "b@x", "mood": "SO_SO", "post_count": "0"}),
        ("account_of(id: 99) { email }", None),
        ("one_account { id email }", {"id": 1, "email": "a@x"}),
        ('find(id: 1)', "by id 1"),
        ('find(email: "e")', "by email e"),
        ('find(email: "e", id: 2)', "by both 2e"),
    ],
)  # fmt: skip
async def test_functions_accept_arguments_and_return_results(api: Service, text: str, expected: Any) -> None:
    assert await call(api, text) == expected


async def test_arguments_can_be_variables(api: Service) -> None:
    query = "query($f: mood!, $o: [mood]) { describe_mood(feeling: $f, others: $o) }"
    assert (await api.data(query, {"f": "SO_SO", "o": ["sad", None]}))["describe_mood"] == "so so:sad,-"
    assert (await api.data(query, {"f": "ok"}))["describe_mood"] == "ok:", (
        "an absent variable gets the default"
    )
    assert (await api.data(query, {"f": "ok", "o": None}))["describe_mood"] is None, "and a null one is NULL"
    query = "query($p: Opaque!) { describe_pair(p: $p) }"
    assert (await api.data(query, {"p": {"x": 3, "label": "$1"}}))["describe_pair"] == "3$1"
    query = "query($id: Int, $email: String) { find(id: $id, email: $email) }"
    assert (await api.data(query, {"id": 1}))["find"] == "by id 1"
    assert (await api.data(query, {"email": "e"}))["find"] == "by email e"
    assert (await api.data(query, {"id": 1, "email": "e"}))["find"] == "by both 1e"


async def test_error_for_unknown_arguments_lists_the_overloads(api: Service) -> None:
    response = await api.ask("{ find }")
    assert response.error == (
        "No overload of find accepts the arguments (). Overloads: find(email), find(id), find(id, email)"
    )
    assert response.errors[0]["path"] == ["find"]
    assert response.messages == ()


async def test_overloads_with_equal_argument_names_are_separate_fields(api: Service) -> None:
    fields = api.schema().object_type("Query").fields
    texts = {name: str(fields[name].args["v"].type) for name in fields if name.startswith("twin")}
    assert sorted(texts.values()) == ["String!", "mood!"]
    for name, type_ in texts.items():
        value = "ok" if type_ == "mood!" else '"ok"'
        assert await call(api, f"{name}(v: {value})") == f"{'mood' if type_ == 'mood!' else 'text'} ok"


async def test_defaults_that_are_plain_values_are_shown(api: Service) -> None:
    query = '{ __type(name: "Query") { fields { name args { name defaultValue type { kind } } } } }'
    fields = {
        field["name"]: field["args"] for field in (await api.data(query, check=False))["__type"]["fields"]
    }
    shown = {
        name: {item["name"]: item["defaultValue"] for item in fields[name]}
        for name in ("greet", "nullable", "now_or", "add_stable", "describe_mood")
    }
    assert shown == {
        "greet": {"name": '"you, there"', "greeting": '"Hello; \\"hi\\""', "times": "1"},
        "nullable": {"value": None},
        "now_or": {"moment": None},
        "add_stable": {"a": None, "b": None},
        "describe_mood": {"feeling": None, "others": None},
    }
    assert {item["type"]["kind"] for item in fields["add_stable"]} == {"NON_NULL"}
    assert not {item["type"]["kind"] for item in fields["now_or"]} & {"NON_NULL"}


async def test_collection_result_accepts_all_collection_arguments(api: Service) -> None:
    text = """accounts_like(
        pattern: "%@x", first: 1, offset: 1, orderBy: {id: DescNullsLast}, filter: {id: {gt: 0}}) {
        totalCount aggregate { count max { email } } pageInfo { hasNextPage hasPreviousPage }
        edges { cursor node { nodeId email bookless: postCollection { totalCount } } } }"""
    value = await call(api, text)
    assert value["totalCount"] == 2
    assert value["aggregate"] == {"count": 2, "max": {"email": "b@x"}}
    assert value["pageInfo"] == {"hasNextPage": False, "hasPreviousPage": True}
    [edge] = value["edges"]
    assert edge["node"]["email"] == "a@x"
    assert edge["node"]["bookless"] == {"totalCount": 1}
    text = (
        'accounts_like(pattern: "%", orderBy: {id: DescNullsLast}, last: 5, before: $c) { edges { node '
        "{ id } } }"
    )
    before = await call(api, text, {"c": edge["cursor"]}, head="query($c: Cursor)")
    assert [row["id"] for row in nodes(before)] == [3, 2]
    assert "totalCount" not in (await call(api, 'accounts_like(pattern: "z") { edges { node { id } } }'))


async def test_void_is_null_and_runs(api: Service) -> None:
    assert await call(api, 'log_void(word: "w")', head="mutation") is None
    assert api.database.execute("select word from calls") == [("w",)]


async def test_null_results_are_returned_among_other_mutations(api: Service) -> None:
    data = await api.data("""mutation {
        a: log_void(word: "1") t: __typename b: nobody { id } c: tick(word: "2")
        d: made_up { id email } e: log_void(word: "3") f: add_volatile(a: 1, b: 2) }""")
    assert list(data.items()) == [
        ("a", None), ("t", "Mutation"), ("b", None), ("c", "SO_SO"),
        ("d", {"id": -1, "email": 'a "quoted", \\ one'}), ("e", None), ("f", 3),
    ]  # fmt: skip
    assert api.database.execute("select string_agg(word, '' order by id) from calls") == [("123",)]


@pytest.mark.parametrize(("text", "expected"), [("tick", "SO_SO"), ("ticks", ["SO_SO", "ok"])])
async def test_function_that_changes_data_runs_once(api: Service, text: str, expected: Any) -> None:
    assert await call(api, f'{text}(word: "w")', head="mutation") == expected
    assert api.database.execute("select count(*) from calls") == [(1,)]


async def test_function_that_returns_a_collection_runs_once(api: Service) -> None:
    text = """create_accounts(emails: ["p", "q, \\"r\\"", "s"], first: 2, orderBy: {email: DescNullsLast}) {
        totalCount aggregate { count } pageInfo { hasNextPage startCursor } edges { cursor node { email
        post_count } } }"""
    response = await api.ask(f"mutation {{ r: {text} }}")
    assert len(response.messages) == 1
    value = response.data["r"]
    assert (value["totalCount"], value["aggregate"]["count"]) == (3, 3)
    assert value["pageInfo"] == {"hasNextPage": True, "startCursor": value["edges"][0]["cursor"]}
    assert [row["email"] for row in nodes(value)] == ["s", 'q, "r"']
    assert api.database.execute("select (select count(*) from calls), (select count(*) from account)") == [
        (1, 6)
    ]
    empty = await call(
        api, "create_accounts(emails: []) { totalCount edges { node { id } } }", head="mutation"
    )
    assert empty == {"totalCount": 0, "edges": []}


async def test_relationships_of_a_returned_row_see_the_changes(api: Service) -> None:
    text = """create_account(email: "new", titles: ["t1", "t2"]) {
        nodeId id email post_count postCollection { totalCount edges { node { title account { email } } } }
        }"""
    value = await call(api, text, head="mutation")
    assert (value["id"], value["email"], value["post_count"]) == (4, "new", "2")
    assert [row["title"] for row in nodes(value["postCollection"])] == ["t1", "t2"]
    assert nodes(value["postCollection"])[0]["account"] == {"email": "new"}
    assert await call(api, "made_up { id email mood post_count }", head="mutation") == {
        "id": -1, "email": 'a "quoted", \\ one', "mood": None, "post_count": "0",
    }  # fmt: skip
    assert await call(api, "nobody { id post_count }", head="mutation") is None


@pytest.mark.parametrize("text", ["create_account", "made_up"])
async def test_one_call_is_one_message(api: Service, text: str) -> None:
    arguments = '(email: "n", titles: ["t"])' if text == "create_account" else ""
    response = await api.ask(f"mutation {{ {text}{arguments} {{ id email }} }}")
    assert "errors" not in response.body
    assert (len(response.messages), len(response.statements)) == (1, 1)


def test_functions_that_cannot_be_fields_are_not_offered(api: Service) -> None:
    fields = {*api.schema().object_type("Query").fields, *api.schema().object_type("Mutation").fields}
    assert not [name for name in fields if name.startswith("n_") or "weird" in name]
    assert "post_count" not in fields, "a function of one row is a computed field"
    assert api.schema().object_type("Query").fields.get("n_revoked") is None
    assert "n_revoked" not in api.schema("authenticated").object_type("Query").fields


async def test_execute_decides_who_may_call(api: Service) -> None:
    response = await api.ask("{ n_revoked }")
    assert "n_revoked" in response.error
    assert response.messages == ()
    await api.execute("grant execute on function n_revoked() to authenticated")
    assert (await api.data("{ n_revoked }", role="authenticated")) == {"n_revoked": 1}
    assert "n_revoked" in (await api.ask("{ n_revoked }")).error
    await api.execute("revoke execute on function n_revoked() from authenticated")
    assert "n_revoked" in (await api.ask("{ n_revoked }", role="authenticated")).error


async def test_inflected_names_are_used_everywhere(api: Service) -> None:
    assert await call(api, "addAllNumbers(firstNumber: 1)") == 3
    assert await call(api, "addAllNumbers(secondNumber: 1, firstNumber: 1)") == 2
    data = await api.data("""mutation {
        insertIntoAccountHolderCollection(objects: {firstName: "a"}) { __typename records { firstName } }
        makeHolder(firstName: "b") { __typename firstName nodeId }
        updateAccountHolderCollection(set: {firstName: "c"}, filter: {firstName: {eq: "b"}}) { affectedCount }
        deleteFromAccountHolderCollection(atMost: 2) { __typename affectedCount } }""")
    assert data["insertIntoAccountHolderCollection"] == {
        "__typename": "AccountHolderInsertResponse",
        "records": [{"firstName": "a"}],
    }
    assert data["makeHolder"]["firstName"] == "b"
    assert data["updateAccountHolderCollection"] == {"affectedCount": 1}
    assert data["deleteFromAccountHolderCollection"]["affectedCount"] == 2


async def test_error_that_a_function_raises_has_its_code_and_message(api: Service) -> None:
    response = await api.ask('mutation { log_void(word: "before") refuse(word: "me") }')
    assert response.body == {
        "data": None,
        "errors": [{"message": "refused: me", "extensions": {"code": "AB123"}}],
    }
    assert api.database.execute("select count(*) from calls") == [(0,)]
    response = await api.ask("{ divide(a: 1, b: 0) }")
    assert response.error == "division by zero"
    assert response.errors[0]["extensions"] == {"code": "22012"}


async def test_query_function_cannot_change_data(api: Service) -> None:
    await api.execute("""create function liar() returns int stable language plpgsql as
        $$ begin perform log_void('lie'); return 1; end $$""")
    response = await api.ask("{ liar }")
    assert response.errors[0]["extensions"]["code"] in ("25006", "0A000")
    assert api.database.execute("select count(*) from calls") == [(0,)]


async def test_invalid_arguments_are_rejected(api: Service) -> None:
    assert "Int cannot represent" in (await api.ask('{ half(n: "x") }')).error
    response = await api.ask("{ half(n: -1) }")
    assert response.errors[0]["extensions"]["code"] == "23514"
    response = await api.ask('{ describe_pair(p: {x: "no number"}) }')
    assert response.errors[0]["extensions"]["code"] == "22P02"
    response = await api.ask("{ describe_mood(feeling: nope) }")
    assert "nope" in response.error
    assert response.messages == ()
