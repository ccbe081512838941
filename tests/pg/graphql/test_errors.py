"""Errors of GraphQL over HTTP: limits, database errors and information that errors must not reveal."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.effort import Effort
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table account (id int primary key, email text, secret text, boss int references account);
insert into account select n, 'mail' || n, 'hush', greatest(n - 1, 1) from generate_series(1, 5) n;
create table vault (id int primary key, code text);
insert into vault values (1, 'hush');
create view broken as select id, 1 / (id - 3) as ratio from account;
comment on view broken is '@graphql({"primary_key_columns": ["id"]})';
create function _failing(account) returns text language plpgsql stable as
    'begin raise exception ''told by the function'' using detail = ''hush'', hint = ''hush''; end';
create function _big(account) returns bigint language sql stable as 'select 9223372036854775807 + $1.id';
create schema closed;
create table closed.thing (id int primary key);
grant select on broken to anon;
grant select (id, email, boss) on account to anon;
grant select on account, broken to authenticated;

"""
GRAPHQL = {"accept": "application/graphql-response+json"}


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    limits = {
        "graphql_max_depth": 20,
        "graphql_max_aliases": 100,
        "graphql_max_tokens": 5000,
        "graphql_max_cost": 1000,
        "max_body": 100_000,
    }
    with serving(reactor, server.create_database(SCHEMA), **limits) as service:
        yield service


def nested(depth: int) -> str:
    return "{ accountByPk(id: 1) " + "{ account " * (depth - 2) + "{ id }" + " }" * (depth - 1)


async def rejected(api: Service, query: str, **named: Any) -> str:
    """Return the error message of a request that is rejected before execution for both media types."""
    plain = await api.ask(query, **named)
    typed = await api.ask(query, headers=GRAPHQL, **named)
    assert (plain.status, typed.status) == (200, 400)
    assert plain.body == typed.body
    assert "data" not in plain.body
    assert plain.messages == typed.messages == ()
    return plain.error


async def test_depth_is_limited(api: Service) -> None:
    assert (await api.ask(nested(20))).data
    assert await rejected(api, nested(21)) == "The operation is 21 fields deep, more than the 20 allowed."
    fragments = " ".join(f"fragment f{n} on account {{ account {{ ...f{n + 1} }} }}" for n in range(20))
    query = f"{{ accountByPk(id: 1) {{ ...f0 }} }} {fragments} fragment f20 on account {{ id }}"
    assert await rejected(api, query) == "The operation is 22 fields deep, more than the 20 allowed."


async def test_aliases_are_limited(api: Service) -> None:
    query = "{ accountByPk(id: 1) { %s } }"
    assert (await api.ask(query % " ".join(f"a{n}: id" for n in range(100)))).data
    message = "The operation has 101 aliases, more than the 100 allowed."
    assert await rejected(api, query % " ".join(f"a{n}: id" for n in range(101))) == message
    doubling = " ".join(f"fragment f{n} on account {{ ...f{n + 1} ...f{n + 1} }}" for n in range(30))
    query = f"{{ accountByPk(id: 1) {{ ...f0 }} }} {doubling} fragment f30 on account {{ a: id }}"
    assert "aliases, more than the 100 allowed" in await rejected(api, query)


async def test_tokens_are_limited(api: Service) -> None:
    message = await rejected(api, "{ " + "id " * 5_000 + "}")
    assert message == "Syntax Error: Document contains more than 5000 tokens. Parsing aborted."


@pytest.mark.parametrize(
    "document",
    [
        "{ " + "accountCollection { __typename } " * 1200 + "}",
        "{ accountCollection { edges { node { " + "account { id } " * 1200 + "} } } }",
        "{ " + "".join(f"...f{n} " for n in range(400)) + "} "
        + " ".join(f"fragment f{n} on Query {{ accountCollection {{ __typename }} }}" for n in range(400)),
    ],
    ids=["repeated root", "repeated row", "fragments"],
)  # fmt: skip
async def test_document_that_is_expensive_to_validate_is_rejected_early(api: Service, document: str) -> None:
    """Comparing fields of the same name is quadratic and must not block other requests."""
    effort = Effort()
    response = await api.ask(document)
    assert response.error == ("The document is too complex: it repeats too many fields or nests too deeply.")
    assert effort.units < 300


async def test_many_fragments_with_the_same_scalars_are_accepted(api: Service) -> None:
    spreads = " ".join(f"...f{n}" for n in range(500))
    fragments = " ".join(f"fragment f{n} on Query {{ __typename }}" for n in range(500))
    assert await api.data(f"{{ {spreads} }} {fragments}") == {"__typename": "Query"}


async def test_long_document_is_accepted(api: Service) -> None:
    row = "id email boss account { id email boss account { id email } } nodeId __typename ...f ...f "
    fields = " ".join(f"a{n}: accountByPk(id: {n}) {{ {row * 3} }}" for n in range(50))
    response = await api.ask(f"{{ {fields} }} fragment f on account {{ id email account {{ id boss }} }}")
    assert len(response.data) == 50


async def test_repeated_fragments_are_collected_once(api: Service) -> None:
    doubling = " ".join(f"fragment f{n} on account {{ ...f{n + 1} ...f{n + 1} }}" for n in range(30))
    query = f"{{ accountByPk(id: 1) {{ ...f0 }} }} {doubling} fragment f30 on account {{ id }}"
    assert (await api.ask(query)).data == {"accountByPk": {"id": 1}}


async def test_cost_is_limited(api: Service) -> None:
    pages = """{ accountCollection(first: %s) { edges { node {
        accountCollection(first: %s) { edges { cursor } } } } } }"""
    assert (await api.ask(pages % (30, 30))).data
    assert await rejected(
        api, pages.replace("edges { cursor }", "edges { node { account { id } } }") % (30, 30)
    ) == (
        "The operation may touch 1830 rows, more than the 1000 allowed: "
        "request smaller pages with `first`, or nest fewer collections."
    )
    query = """query($n: Int) { a: accountCollection(first: $n) { edges { node {
        accountCollection { edges { node { accountCollection { edges { cursor } } } } } } } } }"""
    assert (await api.ask(query, {"n": 1})).data
    # 30, then 30 for each of the 30, then twice the table's estimate and 1,000.
    assert "The operation may touch 2442 rows, more than the 1000 allowed" in await rejected(
        api, query, variables={"n": 30}
    )
    assert "may touch 2442 rows" in await rejected(api, query)
    assert (await api.ask(query, {"n": 1})).data


async def test_bodies_are_limited(api: Service) -> None:
    response = await api.send(json.dumps({"query": "{__typename}" + " " * 100_000}).encode())
    assert response.status == 413
    assert "larger than 100000 bytes" in response.error


@pytest.mark.parametrize(
    "query",
    [
        "{" * 5000,
        "{ a" * 3000,
        "{ accountCollection(filter: " + "{not: " * 3000 + "{}" + "}" * 3000 + ") { __typename } }",
        "query($a: " + "[" * 5000 + "Int" + "]" * 5000 + ") { __typename }",
        "{ accountCollection(filter: {id: {in: " + "[" * 4000 + "]" * 4000 + "}}) { __typename } }",
    ],
)
async def test_excessively_nested_documents_are_rejected(api: Service, query: str) -> None:
    for headers in (None, GRAPHQL):
        response = await api.ask(query, headers=headers, check=False)
        assert response.status in (200, 400)
        assert response.error
        assert "internal" not in response.error.lower()
    assert (await api.ask("{ __typename }")).data


async def test_excessively_nested_variables_are_rejected(api: Service) -> None:
    value: Any = {}
    for _ in range(400):
        value = {"not": value}
    query = "query($f: accountFilter) { accountCollection(filter: $f) { edges { cursor } } }"
    deep = json.dumps({"query": query, "variables": {"f": value}}).encode()
    for body in (deep, deep.replace(b'{"not": {}}', b'{"not": ' * 9000 + b"{}" + b"}" * 9000)):
        response = await api.send(body)
        assert response.status in (200, 400)
        assert "nested too deeply" in response.error


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("{", "Syntax Error: Expected Name, found <EOF>."),
        ("", "Syntax Error: Unexpected <EOF>."),
        ("{ account }", "Cannot query field 'account' on type 'Query'."),
        ("{ accountByPk(id: 1) { x } }", "Cannot query field 'x' on type 'account'."),
        ("{ accountCollection { x } }", "Cannot query field 'x' on type 'accountConnection'."),
        ("mutation { x }", "mutation"),
        ("subscription { x }", "subscription"),
    ],
)
async def test_errors_have_locations(api: Service, query: str, message: str) -> None:
    assert message in await rejected(api, query)
    response = await api.ask(query)
    assert set(response.errors[0]) == {"message", "locations"}


@pytest.mark.parametrize(
    ("hidden", "absent"),
    [
        ("{ vaultCollection { edges { cursor } } }", "{ valutCollection { edges { cursor } } }"),
        ("{ vaultByPk(id: 1) { id } }", "{ valutByPk(id: 1) { id } }"),
        ("{ thingCollection { edges { cursor } } }", "{ thongCollection { edges { cursor } } }"),
        ("{ accountByPk(id: 1) { secret } }", "{ accountByPk(id: 1) { sceret } }"),
        (
            '{ accountCollection(filter: {secret: {eq: "x"}}) { __typename } }',
            '{ accountCollection(filter: {sceret: {eq: "x"}}) { __typename } }',
        ),
        (
            "{ accountCollection(orderBy: {secret: AscNullsLast}) { __typename } }",
            "{ accountCollection(orderBy: {sceret: AscNullsLast}) { __typename } }",
        ),
        (
            "query($v: vaultFilter) { __typename @skip(if: $v) }",
            "query($v: valutFilter) { __typename @skip(if: $v) }",
        ),
        ('{ node(nodeId: "x") { ... on vault { id } } }', '{ node(nodeId: "x") { ... on valut { id } } }'),
        ("query($v: vaultInsertInput) { a }", "query($v: valutInsertInput) { a }"),
    ],
)
async def test_hidden_names_have_the_same_errors_as_unknown_names(
    api: Service, hidden: str, absent: str
) -> None:
    hidden_response, absent_response = await api.ask(hidden), await api.ask(absent)
    assert hidden_response.errors
    text = (
        hidden_response.text.replace("vault", "valut").replace("thing", "thong").replace("secret", "sceret")
    )
    assert text == absent_response.text
    assert "Did you mean" not in hidden_response.text


async def test_names_are_not_suggested(api: Service) -> None:
    for query in (
        "{ acountCollection { __typename } }",
        "{ accountByPk(id: 1) { emial } }",
        "{ __shema { types } }",
    ):
        assert "Did you mean" not in (await api.ask(query)).text
    response = await api.ask(
        "query($f: accountFilter) { accountCollection(filter: $f) { __typename } }", {"f": {"emial": 1}}
    )
    assert "Did you mean" not in response.text


async def test_database_error_contains_only_message_code_and_path(api: Service) -> None:
    """PostgreSQL's details and hints may reveal data that the role cannot see."""
    response = await api.ask("{ brokenCollection { edges { node { ratio } } } }")
    assert response.status == 200
    assert response.body == {
        "errors": [
            {"message": "division by zero", "path": ["brokenCollection"], "extensions": {"code": "22012"}}
        ],
        "data": None,
    }
    response = await api.ask("{ accountByPk(id: 1) { failing } }", role="authenticated")
    assert response.error == "told by the function"
    assert response.errors[0]["extensions"] == {"code": "P0001"}
    assert "hush" not in response.text
    assert (
        await api.ask("{ accountByPk(id: 1) { big } }", role="authenticated")
    ).error == "bigint out of range"


async def test_database_error_has_a_path_if_it_is_known(api: Service) -> None:
    """PostgreSQL does not report which of several fields caused the error."""
    broken = "x: brokenCollection { edges { node { ratio } } }"
    assert (await api.ask(f"{{ a: __typename {broken} }}")).errors[0]["path"] == ["x"]
    assert "path" not in (await api.ask(f"{{ {broken} accountCollection {{ __typename }} }}")).errors[0]
    same = "brokenCollection"  # variables may have the names of fields
    text = f"query (${same}: Int) {{ {same}(first: ${same}) {{ edges {{ node {{ ratio }} }} }} }}"
    response = await api.ask(text, {same: 5})
    assert response.errors[0]["path"] == [same]


async def test_errors_within_lists_have_an_index(api: Service) -> None:
    response = await api.ask(
        "{ c: accountCollection { edges { node { accountCollection(first: 1, last: 1) { __typename } } } } }"
    )
    assert response.errors[0]["path"] == ["c", "edges", 0, "node", "accountCollection"]
    response = await api.ask(
        "query($n: Int) { accountCollection { edges { n: node { a: accountCollection(first: $n) {"
        " edges { cursor } } } } } }",
        {"n": -1},
    )
    assert response.errors[0]["path"] == ["accountCollection", "edges", 0, "n", "a"]


async def test_error_of_nullable_field_does_not_affect_siblings(api: Service) -> None:
    good = base64.b64encode(b'["public", "account", 2]').decode()
    query = """query($id: ID!, $n: Int = 1) {
        first: accountByPk(id: 1) { id } node(nodeId: $id) { nodeId
            ... on account { accountCollection(first: $n) { edges { cursor } } } } __typename }"""
    assert (await api.data(query, {"id": good}))["node"]["nodeId"] == good
    others = {"first": {"id": 1}, "node": None, "__typename": "Query"}
    for values, path in (({"id": "?"}, ["node"]), ({"id": good, "n": -1}, ["node", "accountCollection"])):
        response = await api.ask(query, values)
        assert response.status == 200
        assert response.body["data"] == others
        assert [error["path"] for error in response.errors] == [path]
        assert response.errors[0]["locations"]
        assert len(response.messages) == 1
    # The same query with literals instead of variables.
    for gap in (2 * " ", 9 * " "):
        text = f'{{ first: accountByPk(id: 1) {{ id }}{gap}node(nodeId: "?") {{ nodeId }} __typename }}'
        response = await api.ask(text)
        assert response.body["data"] == others
        assert response.errors[0]["locations"][0]["column"] == text.index("node(") + 1
    response = await api.ask('{ a: node(nodeId: "?") { nodeId } b: node(nodeId: "!") { nodeId } __typename }')
    assert response.body["data"] == {"a": None, "b": None, "__typename": "Query"}
    assert [error["path"] for error in response.errors] == [["a"], ["b"]]
    assert response.messages == ()


async def test_data_is_null_if_all_fields_failed(api: Service) -> None:
    response = await api.ask('{ a: node(nodeId: "?") { nodeId } b: node(nodeId: "!") { nodeId } }')
    assert response.body["data"] is None
    assert [error["path"] for error in response.errors] == [["a"], ["b"]]
    assert response.messages == ()


async def test_error_of_a_non_null_field_leaves_no_data(api: Service) -> None:
    response = await api.ask(
        "query($n: Int) { accountCollection(first: $n) { edges { cursor } } accountByPk(id: 1) { id } }",
        {"n": -1},
    )
    assert response.body["data"] is None
    assert response.messages == ()


async def test_failed_operation_changes_nothing(api: Service) -> None:
    query = "query($id: Int!) { accountByPk(id: $id) { email } }"
    for _ in range(3):
        await api.ask("{ brokenCollection { edges { node { ratio } } } }")
        assert (await api.data(query, {"id": 1}))["accountByPk"] == {"email": "mail1"}
        assert (await api.ask("{ accountByPk(id: 1) { secret } }", role="authenticated")).data
        assert (await api.ask("{ accountByPk(id: 1) { secret } }")).errors


async def test_values_that_postgresql_rejects_are_reported(api: Service) -> None:
    for condition, code in (
        ('email: {regex: "("}', "2201B"),
        ('email: {like: "m\\\\"}', "22025"),
    ):
        response = await api.ask(f"{{ accountCollection(filter: {{{condition}}}) {{ edges {{ cursor }} }} }}")
        assert response.errors[0]["extensions"] == {"code": code}
        assert response.body["data"] is None


@pytest.mark.parametrize(
    "text",
    ["\0", "a\0b", "\ud800", "\udc00x"],
)
async def test_text_that_postgresql_cannot_store_is_rejected(api: Service, text: str) -> None:
    """NUL and lone surrogates in variables, literals, cursors and node IDs."""
    escaped = json.dumps(text)
    written = json.dumps(
        f"{{ accountCollection(filter: {{email: {{eq: {escaped}}}}}) {{ edges {{ cursor }} }} }}"
    )
    aliased = '"query($v: String) { accountCollection(filter: {email: {eq: $v}}) { edges { cursor } } }"'
    cursor = base64.b64encode(json.dumps([text]).encode()).decode()
    node = base64.b64encode(json.dumps(["public", "account", text]).encode()).decode()
    bodies = [
        f'{{"query": {written}}}',
        f'{{"query": {aliased}, "variables": {{"v": {escaped}}}}}',
    ]
    for packed, kind, use in (
        (cursor, "Cursor", "accountCollection(after: $v) { edges { cursor } }"),
        (node, "ID!", "node(nodeId: $v) { nodeId }"),
        (node, "ID", "accountCollection(filter: {nodeId: {eq: $v}}) { edges { cursor } }"),
    ):
        by_variable = {"query": f"query($v: {kind}) {{ {use} }}", "variables": {"v": packed}}
        as_literal = {"query": "{ " + use.replace("$v", f'"{packed}"') + " }"}
        bodies += [json.dumps(by_variable), json.dumps(as_literal)]
    for body in bodies:
        response = await api.send(body.encode())
        assert response.status in (200, 400), body
        assert response.errors, body
        assert "internal" not in response.error.lower(), body
    assert (await api.ask("{ accountByPk(id: 1) { id } }")).data


async def test_role_that_cannot_be_assumed_is_rejected(api: Service) -> None:
    for role in ("postgres", "nobody", "none"):
        response = await api.ask("{ __typename }", role=role)
        assert response.status == 403
        assert response.messages == ()


async def test_request_without_an_api_key_is_rejected(api: Service) -> None:
    response = await api.ask("{ __typename }", headers={"apikey": ""})
    assert response.status == 401
    assert response.messages == ()


async def test_invalid_page_argument_is_an_error_of_its_field(api: Service) -> None:
    response = await api.ask(
        "{ ok: accountByPk(id: 1) { id } bad: accountCollection(first: -1) { edges { cursor } } }"
    )
    assert response.body["data"] is None
    assert response.errors[0]["path"] == ["bad"]
    response = await api.ask(
        "{ a: accountByPk(id: 1) { b: accountCollection(first: 1, last: 1) { edges { cursor } } } }"
    )
    assert response.errors[0]["path"] == ["a", "b"]
    assert response.errors[0]["locations"] == [{"line": 1, "column": 27}]
