"""SQL injection in mutations, with hostile values and hostile names.

PostgreSQL may receive request text only as parameter values, and database names only as quoted identifiers.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service import Answer, Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

HOSTILE = (
    "'; drop table target; --", '"; drop table target; --', "$$; drop table target; $$",
    "\\'; drop table target; --",
    "') ; delete from target; --", "$1", "$2", "%s", "%(x)s", "%", "%%", "{0}", "\\", "\\\\", "'", "''",
    '"', '""', ";",
    "--", "/*", "*/", "E'\\x27'", "U&'\\0027'", "$tag$", "\u2019; select 1", "😀'", "\U0001d54f\"", "\r\n;",
    "\t", "`", "null", "NULL",
    "~dataapi~boo~dataapi~1", "dataapi.result0", "{", "}", "{\"a", "(,)", "pg_sleep(1)", "1 or 1=1",
    "\u2028\u2029",
)  # fmt: skip
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
PIECES = st.lists(st.sampled_from(HOSTILE) | PLAIN, min_size=1, max_size=3).map("".join)
TEXTS = st.sampled_from(HOSTILE) | PIECES

SCHEMA = """
create type mood as enum ('sad', 'ok');
create table target (id serial primary key, note text, doc jsonb, tags text[], raw inet, ci varchar, mood
    mood);
create function echo(value text default null, "values" text[] default null, doc jsonb default null) returns
    text
    immutable language sql as $$ select coalesce(value, array_to_string("values", ','), doc ->> 'k') $$;
create function echo_volatile(value text) returns text language sql as $$ select value $$;
create function echo_pair(pair target) returns text immutable language sql as $$ select (pair).note $$;
create type pair as (note text, other text);
create function pair_note(p pair, q int) returns text immutable language sql as $$ select (p).note $$;
grant all on target to anon;
grant all on target_id_seq to anon;
"""


def check_statements(response: Answer, *texts: str) -> None:
    for message in response.messages:
        for bound in message.statements:
            for text in texts:
                assert text not in bound.statement.text
                assert text not in ",".join(bound.statement.types)


async def execute(service: Service, query: str, variables: dict[str, Any], marker: str) -> Any:
    """Execute a request, check its statements for the marker and return the data."""
    response = await service.ask(query, variables)
    check_statements(response, marker)
    return response.data


@given(text=TEXTS, as_literal=st.booleans())
async def test_values_are_stored_and_matched_unchanged(service: Service, text: str, as_literal: bool) -> None:
    marker = uuid.uuid4().hex
    value = marker + text
    document = json.dumps({value: [value]})
    head, text_value, doc_value = "mutation($t: String, $d: JSON)", "$t", "$d"
    if as_literal:
        head, text_value, doc_value = "mutation", json.dumps(value), json.dumps(document)
    data = await execute(
        service,
        f"""{head} {{
            deleteFromtargetCollection(atMost: 9) {{ affectedCount }}
            insertIntotargetCollection(objects: {{note: {text_value}, ci: {text_value}, doc: {doc_value},
            tags: [{text_value}, "x"]}})
                {{ records {{ note ci doc tags }} }} }}""",
        {} if as_literal else {"t": value, "d": document},
        marker,
    )
    [record] = data["insertIntotargetCollection"]["records"]
    assert (record["note"], record["ci"], record["tags"]) == (value, value, [value, "x"])
    assert json.loads(record["doc"]) == {value: [value]}
    conditions = (
        "note: {eq: T}", "note: {in: [T]}", "note: {startsWith: T}", "ci: {gte: T, lte: T}",
        "tags: {contains: [T]}",
        "tags: {overlaps: [T]}", 'tags: {eq: [T, "x"]}', "not: {note: {neq: T}}",
        "or: [{note: {eq: T}}, {ci: {eq: T}}]",
    )  # fmt: skip
    fields = " ".join(
        f"f{number}: targetCollection(filter: {{{condition.replace('T', text_value)}}}) {{ edges {{ node "
        "{ note } } }"
        for number, condition in enumerate(conditions)
    )
    data = await execute(
        service,
        "{ " + fields + " }" if as_literal else f"query($t: String!) {{ {fields} }}",
        {} if as_literal else {"t": value},
        marker,
    )
    for number, condition in enumerate(conditions):
        assert nodes(data[f"f{number}"]) == [{"note": value}], condition


@given(text=TEXTS)
async def test_patterns_are_only_patterns(service: Service, text: str) -> None:
    marker = uuid.uuid4().hex
    for operator in ("like", "ilike", "regex", "iregex"):
        query = (
            f"query($t: String!) {{ targetCollection(filter: {{note: {{{operator}: $t}}}}) {{ edges {{ "
            "node { id } } } }"
        )
        response = await service.ask(query, {"t": marker + text})
        check_statements(response, marker)
        if "errors" in response.body:
            assert response.errors[0]["extensions"]["code"] in ("2201B", "22025")


@given(text=TEXTS)
async def test_arguments_of_functions_are_values(service: Service, text: str) -> None:
    marker = uuid.uuid4().hex
    value = marker + text
    query = """query($t: String, $l: [String], $d: JSON, $p: Opaque!) {
        a: echo(value: $t) b: echo(values: $l) c: echo(doc: $d) d: pair_note(p: $p, q: 1) }"""
    variables = {"t": value, "l": [value], "d": json.dumps({"k": value}), "p": {"note": value, value: value}}
    assert await execute(service, query, variables, marker) == {
        "a": value,
        "b": value,
        "c": value,
        "d": value,
    }
    literal = json.dumps(value)
    data = await execute(service, f"mutation {{ echo_volatile(value: {literal}) }}", {}, marker)
    assert data == {"echo_volatile": value}


@given(
    text=TEXTS,
    kind=st.sampled_from(["raw", "mood", "doc", "id", "nodeId", "after", "orderBy", "unknown", "nested"]),
)
async def test_invalid_values_are_rejected(service: Service, text: str, kind: str) -> None:
    marker = uuid.uuid4().hex
    value = marker + text
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "raw": ("mutation($v: Opaque) { insertIntotargetCollection(objects: {raw: $v}) { affectedCount } "
        "}", {"v": value}),
        "mood": ("mutation($v: mood) { insertIntotargetCollection(objects: {mood: $v}) { affectedCount } "
        "}", {"v": value}),
        "doc": ("mutation($v: JSON) { insertIntotargetCollection(objects: {doc: $v}) { affectedCount } }",
        {"v": value}),
        "id": ("mutation($v: Int) { updatetargetCollection(set: {id: $v}) { affectedCount } }", {"v": value}),
        "nodeId": ("mutation($v: ID) { deleteFromtargetCollection(filter: {nodeId: {eq: $v}}) { "
        "affectedCount } }", {"v": value}),
        "after": ("query($v: Cursor) { targetCollection(after: $v) { edges { node { id } } } }",
        {"v": value}),
        "orderBy": ("query($v: targetOrderBy!) { targetCollection(orderBy: [$v]) { edges { node { id } } } "
        "}", {"v": {value: "AscNullsLast"}}),
        "unknown": ("mutation($v: targetInsertInput!) { insertIntotargetCollection(objects: [$v]) { "
        "affectedCount } }", {"v": {value: 1}}),
        "nested": ("mutation($v: [targetInsertInput!]!) { insertIntotargetCollection(objects: $v) { "
        "affectedCount } }", {"v": [{"note": {value: 1}}, {"note": "x"}]}),
    }  # fmt: skip
    query, variables = requests[kind]
    response = await service.ask(query, variables)
    assert response.errors
    check_statements(response, marker)


@given(name=st.from_regex(r"\A[_A-Za-z][_0-9A-Za-z]{0,30}\Z"))
async def test_aliases_are_values(service: Service, name: str) -> None:
    alias = f"{name}{uuid.uuid4().hex}"
    if alias.startswith("__"):
        alias = f"a{alias}"
    query = (
        f'mutation {{ {alias}: updatetargetCollection(set: {{note: "n"}}, atMost: 99) {{ {alias}: '
        f"affectedCount {alias}2: records {{ {alias}: id }} }} }}"
    )
    response = await service.ask(query)
    check_statements(response, alias)
    assert set(response.data[alias]) == {alias, f"{alias}2"}


async def test_statements_contain_no_text_of_a_request(service: Service) -> None:
    marker = "m" + uuid.uuid4().hex
    query = f"""mutation {marker}($v: String, $o: [targetInsertInput!]!) {{
        {marker}a: insertIntotargetCollection(objects: $o) {{ records {{ {marker}n: note }} }}
        {marker}b: insertIntotargetCollection(objects: [{{note: $v, doc: "{{\\"{marker}\\": 1}}", tags:
        ["{marker}"]}}]) {{ affectedCount }}
        {marker}c: updatetargetCollection(set: {{ci: "{marker}"}}, filter: {{note: {{like: "{marker}%"}}}},
        atMost: 9) {{ affectedCount }}
        {marker}d: deleteFromtargetCollection(filter: {{or: [{{ci: {{in: ["{marker}"]}}}}, {{tags:
        {{contains: "{marker}"}}}}]}}, atMost: 9) {{ ...{marker}F }}
        {marker}e: echo_volatile(value: "{marker}")
    }} fragment {marker}F on targetDeleteResponse {{ affectedCount }} # {marker}"""
    rows = [{"note": marker, "doc": json.dumps(marker), "tags": [marker]}] * 2
    response = await service.ask(query, {"v": marker, "o": rows})
    check_statements(response, marker)
    assert response.data[f"{marker}d"] == {"affectedCount": 3}
    assert response.data[f"{marker}e"] == marker
    settings_sent = [name for message in response.messages for name, _ in message.settings]
    assert not [name for name in settings_sent if marker in name]


WEIRD = (
    "a\"b", "it's", "$$", "$1", "semi;colon", "back\\slash", "per%cent", "%s", "x--y", "/*c*/", "new\nline",
    "tab\t",
    "😀", "\U0001d54f", "{0}", "select", "$tag$", "' || 'x",
)  # fmt: skip


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _directive(**members: Any) -> str:
    return _string(f"@graphql({json.dumps(members)})")


def _weird_schema() -> str:
    """Return tables, columns, constraints, functions, arguments and labels with unusual names."""
    parts = ["comment on schema public is '@graphql({\"introspection\": true})';"]
    labels = ", ".join(_string(name) for name in WEIRD)
    mapping = json.dumps({"name": "Strange", "mappings": {name: f"V{n}" for n, name in enumerate(WEIRD)}})
    parts.append(f"create type {_name('enum' + WEIRD[0])} as enum ({labels});")
    parts.append(f"comment on type {_name('enum' + WEIRD[0])} is {_string(f'@graphql({mapping})')};")
    for number, name in enumerate(WEIRD):
        table, key, value = _name(f"table {name}"), _name(f"key {name}"), _name(f"value {name}")
        parts.append(
            f"create table {table} ({key} int primary key, {value} text default {_string(name)},"
            f" label {_name('enum' + WEIRD[0])}, parent int, constraint {_name('fk ' + name)} foreign key"
            " (parent)"
            f" references {table}, constraint {_name('check ' + name)} check ({value} <> 'bad'));"
            f" grant all on {table} to anon;"
        )
        parts.append(
            f"comment on table {table} is"
            f" {_directive(name=f'T{number}', description=name, totalCount={'enabled': True})};"
        )
        parts.append(f'comment on column {table}.{key} is \'@graphql({{"name": "key"}})\';')
        parts.append(f'comment on column {table}.{value} is \'@graphql({{"name": "value"}})\';')
        parts.append(
            f"comment on constraint {_name('fk ' + name)} on {table} is"
            f" {_directive(local_name='children', foreign_name='above')};"
        )
        function = _name(f"function {name}")
        parts.append(
            f"create function {function}(a text default {_string(name)}) returns text"
            " immutable language sql as $body$ select a $body$;"
        )
        parts.append(f'comment on function {function}(text) is \'@graphql({{"name": "f{number}"}})\';')
        parts.append(
            f"create function {_name('computed ' + name)}({table}) returns text"
            f" stable language sql as $body$ select $1.{value} $body$;"
        )
        parts.append(
            f"comment on function {_name('computed ' + name)}({table}) is {_directive(name='computed')};"
        )
    return "\n".join(parts)


@pytest.fixture(scope="module", params=[True, False], ids=["prepared", "inlined"])
def strange(request: pytest.FixtureRequest, server: Server, reactor: Any) -> Iterator[Service]:
    with serving(
        reactor, server.create_database(_weird_schema()), db_prepared_statements=request.param
    ) as running:
        yield running


@pytest.mark.parametrize("number", range(len(WEIRD)), ids=lambda number: ascii(WEIRD[number]))
async def test_names_of_the_database_are_identifiers(strange: Service, number: int) -> None:
    strange.database.execute(f"delete from {_name(f'table {WEIRD[number]}')}")
    data = await strange.data(f"""mutation {{
        a: insertIntoT{number}Collection(objects: [{{key: 1, label: V{number}}}, {{key: 2, value: "v",
        parent: 1}}])
            {{ records {{ nodeId key value label computed above {{ key }} children {{ totalCount edges {{
            node {{ key }} }} }} }} }}
        b: updateT{number}Collection(set: {{value: "w"}}, filter: {{value: {{eq: "v"}}, label: {{is:
        NULL}}}}) {{ records {{ key value }} }} }}""")
    first, second = data["a"]["records"]
    assert (first["value"], first["label"], first["computed"]) == (WEIRD[number], f"V{number}", WEIRD[number])
    assert first["children"] == {"totalCount": 1, "edges": [{"node": {"key": 2}}]}
    assert second["above"] == {"key": 1}
    assert data["b"]["records"] == [{"key": 2, "value": "w"}]
    found = await strange.data(
        f"""query($id: ID!) {{ node(nodeId: $id) {{ ... on T{number} {{ key label }} }}
            f{number} c: t{number}Collection(filter: {{label: {{eq: V{number}}}}}, orderBy: {{value:
            DescNullsLast}}) {{
            edges {{ cursor node {{ key }} }} pageInfo {{ endCursor }} }} }}""",
        {"id": first["nodeId"]},
    )
    assert found["node"] == {"key": 1, "label": f"V{number}"}
    assert found[f"f{number}"] == WEIRD[number]
    assert nodes(found["c"]) == [{"key": 1}]
    rows = [{"key": 3, "value": "x"}, {"key": 4, "value": None}]
    made = await strange.data(
        f"mutation($o: [T{number}InsertInput!]!) {{ r: insertIntoT{number}Collection(objects: $o) {{ "
        "records { key value } } }",
        {"o": rows},
    )
    assert made["r"]["records"] == rows
    response = await strange.ask(
        f'mutation {{ insertIntoT{number}Collection(objects: {{key: 9, value: "bad"}}) {{ affectedCount }} }}'
    )
    assert response.errors[0]["extensions"] == {"code": "23514"}
    assert f"check {WEIRD[number]}" in response.error
    gone = await strange.data(
        f"mutation {{ r: deleteFromT{number}Collection(filter: {{key: {{gte: 2}}}}, atMost: 9) {{ "
        "affectedCount } }"
    )
    assert gone["r"] == {"affectedCount": 3}
