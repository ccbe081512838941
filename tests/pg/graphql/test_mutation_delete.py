"""Deletes over GraphQL: rows, limits and returned records."""

from __future__ import annotations

from typing import Any

import pytest
from support.service import Service, nodes

SCHEMA = """
create table author (id int primary key, name text not null, secret text);
create table book (id int primary key, author_id int references author on delete cascade, title text, pages
    int);
comment on table author is '@graphql({"totalCount": {"enabled": true}})';
comment on table book is '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
create function book_count(author) returns bigint stable language sql
    as 'select count(*) from book where author_id = $1.id';
create function left_stable(author) returns bigint stable language sql as 'select count(*) from author';
create function left_volatile(author) returns bigint volatile language sql as 'select count(*) from author';
create function kept() returns trigger language plpgsql as $$
begin if old.name = 'keep' then return null; end if; return old; end $$;
create trigger kept before delete on author for each row execute function kept();
grant all on author, book to anon;
create table person (id int primary key, boss_id int references person on delete cascade);
comment on constraint person_boss_id_fkey on person is '@graphql({"foreign_name": "boss"})';
create table badge (person_id int primary key references person on delete cascade);
create table note (id int primary key, person_id int references person on delete set null, text text);
create function everybody(person) returns int language sql as 'select count(*)::int from person';
create function readers(note) returns int language plpgsql as
    'begin return (select count(*) from person); end';
create function team(person) returns setof person language sql as
    'select * from person where boss_id = $1.id';
create function chief(person) returns person language sql as 'select * from person where id = $1.boss_id';
create table oddly ("row" text, place int, identity text, shown0 text);
comment on table oddly is '@graphql({"primary_key_columns": ["row"]})';
create function volatile_row(oddly) returns text language sql as 'select $1.row';
grant all on person, badge, note, oddly to anon;
grant select on person to service_role;
grant select (text, person_id), delete on note to service_role;
"""
RESET = """
truncate author, book, person, badge, note;
insert into person values (1, null), (2, 1), (3, 1), (4, 2);
insert into badge values (1);
truncate oddly;
insert into oddly values ('a', 2, null, 'd');
insert into note values (1, 1, 'one'), (2, 2, 'two');
insert into author values (1, 'ann', 's'), (2, 'bob', 's'), (3, 'cid', 's');
insert into book values (1, 1, 'one', 10), (2, 1, 'two', 20), (3, 2, 'three', 30);
"""


async def delete(api: Service, table: str, arguments: str, fields: str = "affectedCount") -> Any:
    arguments = f"({arguments})" if arguments else ""
    return (await api.data(f"mutation {{ r: deleteFrom{table}Collection{arguments} {{ {fields} }} }}"))["r"]


async def test_every_row_that_matches_is_removed_and_shown(api: Service) -> None:
    result = await delete(
        api,
        "book",
        "filter: {author_id: {eq: 1}}, atMost: 2",
        "affectedCount records { nodeId id title pages }",
    )
    assert result["affectedCount"] == 2
    assert sorted(row["id"] for row in result["records"]) == [1, 2]
    assert {row["title"] for row in result["records"]} == {"one", "two"}
    assert await api.ids("book") == [3]


@pytest.mark.parametrize(
    "fields", ["affectedCount", "records { id }", "records { book_count }", "__typename"]
)
async def test_at_most_defaults_to_one(api: Service, fields: str) -> None:
    response = await api.ask(f"mutation {{ deleteFromauthorCollection {{ {fields} }} }}")
    assert response.body == {
        "data": None,
        "errors": [
            {
                "message": "delete impacts too many records",
                "path": ["deleteFromauthorCollection"],
                "extensions": {"code": "22000"},
            }
        ],
    }
    response = await api.ask(f"mutation {{ deleteFromauthorCollection(atMost: 2) {{ {fields} }} }}")
    assert response.error == "delete impacts too many records"
    assert api.database.execute("select count(*) from author") == [(3,)]
    assert (
        "errors"
        not in (await api.ask(f"mutation {{ deleteFromauthorCollection(atMost: 3) {{ {fields} }} }}")).body
    )
    assert api.database.execute("select (select count(*) from author), (select count(*) from book)") == [
        (0, 0)
    ]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("id: {eq: 1}", [1]),
        ("id: {neq: 1}", [2, 3]),
        ('name: {in: ["ann", "cid"]}', [1, 3]),
        ('or: [{name: {startsWith: "a"}}, {id: {gte: 3}}]', [1, 3]),
        ("not: {id: {gt: 1}}", [1]),
        ("and: {id: {gt: 1}, name: {ilike: \"B%\"}}", [2]),
        ("id: {eq: null}", []),
        ("id: {in: []}", []),
        ("", [1, 2, 3]),
    ],
)  # fmt: skip
async def test_filters_choose_the_rows(api: Service, condition: str, ids: list[int]) -> None:
    result = await delete(
        api, "author", f"filter: {{{condition}}}, atMost: 9", "affectedCount records { id }"
    )
    assert (result["affectedCount"], sorted(row["id"] for row in result["records"])) == (len(ids), ids)
    assert await api.ids("author") == [number for number in (1, 2, 3) if number not in ids]


DELETE = "mutation(%s) { deleteFromauthorCollection(filter: %s, atMost: 10) { records { id } } }"
UPDATE = 'mutation(%s) { updateauthorCollection(set: {name: "x"}, filter: %s, atMost: 10) { affectedCount } }'
NAMES = "$n: String, $i: Int"


@pytest.mark.parametrize(
    ("condition", "given", "ids"),
    [
        ("{or: [{name: {eq: $n}}, {id: {eq: $i}}]}", {"i": 2}, [2]),
        ("{or: [{name: {eq: $n}}, {id: {eq: $i}}]}", {"n": "cid"}, [3]),
        ("{or: [{name: {eq: $n}}, {id: {eq: $i}}]}", {"n": "cid", "i": 1}, [1, 3]),
        ("{or: [{name: {eq: $n}, id: {eq: $i}}, {id: {eq: 1}}]}", {"i": 2}, [1, 2]),
        ("{or: [{or: [{name: {eq: $n}}]}, {not: {id: {gt: $i}}}]}", {"i": 1}, [1]),
        ("{not: {or: [{name: {eq: $n}}, {id: {eq: $i}}]}}", {"i": 2}, [1, 3]),
        ("{name: {eq: $n}, id: {eq: $i}}", {"i": 3}, [3]),
    ],
)
async def test_absent_variable_disables_only_its_own_alternative(
    api: Service, condition: str, given: dict[str, Any], ids: list[int]
) -> None:
    data = await api.data(DELETE % (NAMES, condition), given)
    assert sorted(row["id"] for row in data["deleteFromauthorCollection"]["records"]) == ids
    assert await api.ids("author") == [number for number in (1, 2, 3) if number not in ids]


@pytest.mark.parametrize("mutation", [DELETE, UPDATE], ids=["delete", "update"])
@pytest.mark.parametrize(
    ("declared", "condition", "names"),
    [
        ("$n: String", "{name: {eq: $n}}", "$n"),
        (NAMES, "{or: [{name: {eq: $n}}, {id: {eq: $i}}]}", "$n, $i"),
        ("$i: Int", "{and: [{not: {or: {id: {gt: $i, lt: $i}}}}]}", "$i"),
        ("$l: [String!]", "{name: {in: $l}}", "$l"),
        ("$f: authorFilter", "$f", "$f"),
        ("$f: [authorFilter!]", "{or: $f}", "$f"),
        ("$f: authorFilter", "{not: $f}", "$f"),
        ("$f: StringFilter", "{name: $f, or: [{}]}", "$f"),
        ("$f: ID", "{nodeId: {eq: $f}}", "$f"),
    ],
)
async def test_filter_that_is_empty_for_lack_of_variables_is_rejected(
    api: Service, mutation: str, declared: str, condition: str, names: str
) -> None:
    """A client that forgot a value would otherwise change every row."""
    query = mutation % (declared, condition)
    response = await api.ask(query)
    assert response.error == (
        f"The filter would match every row, because it has no value for {names}. Provide one, or write "
        "`filter: {}` to match every row."
    )
    assert response.errors[0]["locations"] == [
        {"line": 1, "column": query.index("filter: ") + len("filter: ") + 1}
    ]
    assert response.body["data"] is None
    assert response.messages == ()


@pytest.mark.parametrize(
    ("declared", "condition", "given"),
    [
        ("$f: authorFilter", "$f", {"f": {}}),
        ("$f: authorFilter", "$f", {"f": None}),
        ("$f: [authorFilter!]", "{or: $f}", {"f": []}),
        ("$f: [authorFilter!]", "{or: $f}", {"f": [{}]}),
        ("$f: authorFilter = {}", "$f", {}),
    ],
)
async def test_explicitly_empty_filter_matches_every_row(
    api: Service, declared: str, condition: str, given: dict[str, Any]
) -> None:
    data = await api.data(DELETE % (declared, condition), given)
    assert len(data["deleteFromauthorCollection"]["records"]) == 3


async def test_variables_are_checked_on_every_request(api: Service) -> None:
    query = DELETE % ("$n: String", "{name: {eq: $n}}")
    for _ in range(2):
        assert "$n" in (await api.ask(query)).error
        assert (await api.data(query, {"n": None}))["deleteFromauthorCollection"]["records"] == []
    [row] = (await api.data(query, {"n": "bob"}))["deleteFromauthorCollection"]["records"]
    assert row == {"id": 2}
    assert "$n" in (await api.ask(query)).error


async def test_records_show_the_rows_as_they_were_with_their_relationships(api: Service) -> None:
    result = await delete(
        api,
        "author",
        "filter: {id: {eq: 1}}",
        "records { name book_count bookCollection { totalCount aggregate { sum { pages } } edges { node { "
        "title } } } }",
    )
    [row] = result["records"]
    assert (row["name"], row["book_count"], row["bookCollection"]["totalCount"]) == ("ann", "2", 2)
    assert row["bookCollection"]["aggregate"]["sum"]["pages"] == "30"
    assert [book["title"] for book in nodes(row["bookCollection"])] == ["one", "two"]
    assert await api.ids("book") == [3], "the foreign key deletes books with their author"
    result = await delete(api, "book", "filter: {id: {eq: 3}}", "records { author { name } }")
    assert result["records"] == [{"author": {"name": "bob"}}]


@pytest.mark.parametrize(
    "arguments", ["filter: {id: {lt: 3}}, atMost: 2", 'filter: {name: {neq: "cid"}}, atMost: 9']
)
async def test_computed_fields_see_the_rows_before_the_delete(api: Service, arguments: str) -> None:
    """A VOLATILE function, the default, would otherwise see the effects of the statement."""
    fields = "id left_stable left_volatile"
    result = await delete(
        api, "author", arguments, f"affectedCount a: records {{ {fields} }} b: records {{ id }}"
    )
    assert result["a"] == [{"id": n, "left_stable": "3", "left_volatile": "3"} for n in (1, 2)]
    assert result["b"] == [{"id": 1}, {"id": 2}]
    assert result["affectedCount"] == 2
    assert await api.ids("author") == [3]


async def test_columns_of_any_name_are_returned_with_volatile_functions(api: Service) -> None:
    result = await delete(api, "oddly", "", "records { row place identity shown0 volatile_row }")
    assert result["records"] == [
        {"row": "a", "place": 2, "identity": None, "shown0": "d", "volatile_row": "a"}
    ]


async def test_delete_of_too_many_rows_is_rejected(api: Service) -> None:
    response = await api.ask("mutation { deleteFromauthorCollection { records { left_volatile } } }")
    assert response.error == "delete impacts too many records"
    assert await api.ids("author") == [1, 2, 3]


async def test_rows_that_a_trigger_preserves_are_not_returned(api: Service) -> None:
    api.database.execute("update author set name = 'keep' where id = 2")
    result = await delete(api, "author", "atMost: 2", "affectedCount records { id left_volatile }")
    assert result == {
        "affectedCount": 2,
        "records": [{"id": 1, "left_volatile": "3"}, {"id": 3, "left_volatile": "3"}],
    }


async def test_every_kind_of_relation_is_shown_as_before_the_delete(api: Service) -> None:
    result = await delete(
        api,
        "person",
        "filter: {id: {lt: 3}}, atMost: 2",
        """records {
            id boss { id } chief { id } badge { person { id } }
            personCollection { edges { node { id everybody } } } team { edges { node { id } } }
            noteCollection { edges { node { id person { id } readers } } }
        }""",
    )
    expected = [
        {
            "id": 1,
            "boss": None,
            "personCollection": [{"id": 2, "everybody": 4}, {"id": 3, "everybody": 4}],
            "badge": {"person": {"id": 1}},
            "noteCollection": [{"id": 1, "person": {"id": 1}, "readers": 4}],
            "team": [{"id": 2}, {"id": 3}],
            "chief": None,
        },
        {
            "id": 2,
            "boss": {"id": 1},
            "personCollection": [{"id": 4, "everybody": 4}],
            "badge": None,
            "noteCollection": [{"id": 2, "person": {"id": 2}, "readers": 4}],
            "team": [{"id": 4}],
            "chief": {"id": 1},
        },
    ]
    for row in result["records"]:
        for name in ("personCollection", "noteCollection", "team"):
            row[name] = nodes(row[name])
    assert result["records"] == expected
    assert await api.ids("person") == [], "the foreign keys delete their subordinates"
    assert await api.rows("note", "id person { id }") == [
        {"id": 1, "person": None},
        {"id": 2, "person": None},
    ]


async def test_role_that_cannot_read_the_key_sees_old_relationships(api: Service) -> None:
    response = await api.data(
        "mutation { deleteFromnoteCollection(atMost: 2) { records { text person { id everybody } } } }",
        role="service_role",
    )
    assert response["deleteFromnoteCollection"]["records"] == [
        {"text": "one", "person": {"id": 1, "everybody": 4}},
        {"text": "two", "person": {"id": 2, "everybody": 4}},
    ]


async def test_trigger_may_preserve_rows(api: Service) -> None:
    api.database.execute("update author set name = 'keep' where id = 2")
    result = await delete(api, "author", "atMost: 2", "affectedCount records { id }")
    assert result["affectedCount"] == 2
    assert await api.ids("author") == [2]


@pytest.mark.parametrize("fields", ["affectedCount", "records { id bookCollection { totalCount } }"])
async def test_delete_is_one_statement(api: Service, fields: str) -> None:
    response = await api.ask(f"mutation {{ deleteFromauthorCollection(atMost: 3) {{ {fields} }} }}")
    assert "errors" not in response.body
    assert (len(response.messages), len(response.statements)) == (1, 1)


async def test_deletes_among_other_changes_run_in_order(api: Service) -> None:
    data = await api.data("""mutation {
        a: deleteFromauthorCollection(filter: {id: {eq: 1}}) { affectedCount }
        b: insertIntoauthorCollection(objects: {id: 1, name: "new"}) { records { book_count } }
        c: deleteFromauthorCollection(filter: {name: {eq: "new"}}) { records { id } } }""")
    assert data == {
        "a": {"affectedCount": 1},
        "b": {"records": [{"book_count": "0"}]},
        "c": {"records": [{"id": 1}]},
    }
    assert await api.ids("author") == [2, 3]


async def test_revoking_delete_removes_the_field(api: Service) -> None:
    words = {
        "insert": "insertIntoauthorCollection",
        "update": "updateauthorCollection",
        "delete": "deleteFromauthorCollection",
    }
    for privilege, field in words.items():
        await api.execute(f"revoke {privilege} on author from anon")
        fields = set(api.schema().object_type("Mutation").fields)
        assert field not in fields
        assert set(words.values()) - {field} <= fields
        assert field in (await api.ask(f"mutation {{ {field} {{ affectedCount }} }}")).errors[0]["message"]
        await api.execute(f"grant {privilege} on author to anon")


async def test_role_without_write_privileges_has_no_mutation_type(api: Service) -> None:
    await api.execute("grant select on author to authenticated")
    assert api.schema("authenticated").schema.mutation_type is None
    response = await api.ask(
        "mutation { deleteFromauthorCollection { affectedCount } }", role="authenticated"
    )
    assert "mutation" in response.error.lower()
    assert response.messages == ()
