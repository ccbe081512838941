"""Deletes over GraphQL: which rows, how many at most, and what the answer shows."""

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
"""
RESET = """
truncate author, book;
insert into author values (1, 'ann', 's'), (2, 'bob', 's'), (3, 'cid', 's');
insert into book values (1, 1, 'one', 10), (2, 1, 'two', 20), (3, 2, 'three', 30);
"""


async def delete(api: Service, table: str, arguments: str, fields: str = "affectedCount") -> Any:
    """Delete and return the response."""
    arguments = f"({arguments})" if arguments else ""
    return (await api.data(f"mutation {{ r: deleteFrom{table}Collection{arguments} {{ {fields} }} }}"))["r"]


async def test_every_row_that_matches_is_removed_and_shown(api: Service) -> None:
    """Mutation rule 3."""
    response = await delete(
        api,
        "book",
        "filter: {author_id: {eq: 1}}, atMost: 2",
        "affectedCount records { nodeId id title pages }",
    )
    assert response["affectedCount"] == 2
    assert sorted(row["id"] for row in response["records"]) == [1, 2]
    assert {row["title"] for row in response["records"]} == {"one", "two"}
    assert await api.ids("book") == [3]


@pytest.mark.parametrize(
    "fields", ["affectedCount", "records { id }", "records { book_count }", "__typename"]
)
async def test_at_most_is_one_unless_given(api: Service, fields: str) -> None:
    """The excess is an error that changes nothing (reference 1.4)."""
    answer = await api.ask(f"mutation {{ deleteFromauthorCollection {{ {fields} }} }}")
    assert answer.body == {
        "data": None,
        "errors": [
            {
                "message": "delete impacts too many records",
                "path": ["deleteFromauthorCollection"],
                "extensions": {"code": "22000"},
            }
        ],
    }
    answer = await api.ask(f"mutation {{ deleteFromauthorCollection(atMost: 2) {{ {fields} }} }}")
    assert answer.error == "delete impacts too many records"
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
    response = await delete(
        api, "author", f"filter: {{{condition}}}, atMost: 9", "affectedCount records { id }"
    )
    assert (response["affectedCount"], sorted(row["id"] for row in response["records"])) == (len(ids), ids)
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
async def test_an_absent_variable_closes_only_its_own_alternative(
    api: Service, condition: str, given: dict[str, Any], ids: list[int]
) -> None:
    """An alternative that demands nothing is ignored; it never opens the others to every row."""
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
async def test_a_filter_that_demands_nothing_for_want_of_variables_is_refused(
    api: Service, mutation: str, declared: str, condition: str, names: str
) -> None:
    """A client that forgot a value would change every row; the error names what is absent, and its place."""
    query = mutation % (declared, condition)
    answer = await api.ask(query)
    assert answer.error == (
        f"The filter would match every row, because it has no value for {names}. Provide one, or write "
        "`filter: {}` to mean every row."
    )
    assert answer.errors[0]["locations"] == [
        {"line": 1, "column": query.index("filter: ") + len("filter: ") + 1}
    ]
    assert answer.body["data"] is None
    assert answer.messages == ()


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
async def test_a_filter_that_says_that_it_demands_nothing_means_every_row(
    api: Service, declared: str, condition: str, given: dict[str, Any]
) -> None:
    """Nothing is absent: the client said ``{}`` or null itself."""
    data = await api.data(DELETE % (declared, condition), given)
    assert len(data["deleteFromauthorCollection"]["records"]) == 3


async def test_an_absent_null_or_given_variable_is_judged_each_time_anew(api: Service) -> None:
    """What one request compiled to never serves another that gives other variables."""
    query = DELETE % ("$n: String", "{name: {eq: $n}}")
    for _ in range(2):
        assert "$n" in (await api.ask(query)).error
        assert (await api.data(query, {"n": None}))["deleteFromauthorCollection"]["records"] == []
    [row] = (await api.data(query, {"n": "bob"}))["deleteFromauthorCollection"]["records"]
    assert row == {"id": 2}
    assert "$n" in (await api.ask(query)).error


async def test_records_show_the_rows_as_they_were_with_their_relationships(api: Service) -> None:
    """A deleted row's relationships are those that it had, so that a client can show what is gone."""
    response = await delete(
        api,
        "author",
        "filter: {id: {eq: 1}}",
        "records { name book_count bookCollection { totalCount aggregate { sum { pages } } edges { node { "
        "title } } } }",
    )
    [row] = response["records"]
    assert (row["name"], row["book_count"], row["bookCollection"]["totalCount"]) == ("ann", "2", 2)
    assert row["bookCollection"]["aggregate"]["sum"]["pages"] == "30"
    assert [book["title"] for book in nodes(row["bookCollection"])] == ["one", "two"]
    assert await api.ids("book") == [3], "deleted with their author, as the foreign key says"
    response = await delete(api, "book", "filter: {id: {eq: 3}}", "records { author { name } }")
    assert response["records"] == [{"author": {"name": "bob"}}]


async def test_a_stable_computed_field_sees_the_rows_before_and_a_volatile_one_after(api: Service) -> None:
    """PostgreSQL's rule: STABLE functions see the statement's snapshot, VOLATILE ones what it did so far."""
    response = await delete(api, "author", "filter: {id: {eq: 1}}", "records { left_stable left_volatile }")
    assert response["records"] == [{"left_stable": "3", "left_volatile": "2"}]


async def test_a_trigger_may_keep_rows(api: Service) -> None:
    api.database.execute("update author set name = 'keep' where id = 2")
    response = await delete(api, "author", "atMost: 2", "affectedCount records { id }")
    assert response["affectedCount"] == 2
    assert await api.ids("author") == [2]


@pytest.mark.parametrize("fields", ["affectedCount", "records { id bookCollection { totalCount } }"])
async def test_a_delete_is_one_statement(api: Service, fields: str) -> None:
    answer = await api.ask(f"mutation {{ deleteFromauthorCollection(atMost: 3) {{ {fields} }} }}")
    assert "errors" not in answer.body
    assert (len(answer.messages), len(answer.statements)) == (1, 1)


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
    """Mutation rule 5, for each of the three."""
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


async def test_without_any_change_there_is_no_mutation_type(api: Service) -> None:
    await api.execute("grant select on author to authenticated")
    assert api.schema("authenticated").schema.mutation_type is None
    answer = await api.ask("mutation { deleteFromauthorCollection { affectedCount } }", role="authenticated")
    assert "mutation" in answer.error.lower()
    assert answer.messages == ()
