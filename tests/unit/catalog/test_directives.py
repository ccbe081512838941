"""Directives in comments: what is read, and what a mistake costs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.catalog.directive_reader import (
    enum_directives,
    field_directives,
    foreign_key_directives,
    schema_directives,
    table_directives,
    without_directives,
)
from dataapi.catalog.directives import (
    DeclaredForeignKey,
    EnumDirectives,
    FieldDirectives,
    ForeignKeyDirectives,
    SchemaDirectives,
    TableDirectives,
    is_graphql_name,
)
from dataapi.catalog.model import Problem
from hypothesis import given
from hypothesis import strategies as st
from support.catalog import MadeUp

COLUMNS = ("id", "account_id", "title")


def comment(**members: Any) -> str:
    """Write a directive among other words."""
    return f"About it. @graphql({json.dumps(members)}) More (of it)."


def table(text: str | None) -> tuple[TableDirectives | None, list[str]]:
    """Read a table's comment; return the directives and the problems' messages."""
    problems: list[Problem] = []
    return table_directives("table x", text, COLUMNS, problems), [problem.message for problem in problems]


def test_every_key_of_a_schema_is_read() -> None:
    """``inflect_names``, ``max_rows`` and ``introspection`` belong to schemas."""
    problems: list[Problem] = []
    text = comment(inflect_names=True, max_rows=100, introspection=True)
    assert schema_directives("schema s", text, problems) == SchemaDirectives(True, 100, True)
    assert problems == []


def test_every_key_of_a_table_is_read() -> None:
    """A table's directive may carry all of its keys in one object."""
    foreign_key = {
        "local_name": "accounts",
        "local_columns": ["account_id"],
        "foreign_name": "account",
        "foreign_schema": "public",
        "foreign_table": "account",
        "foreign_columns": ["id"],
    }
    found, problems = table(
        comment(
            name="Blog",
            description="Posts",
            totalCount={"enabled": True},
            aggregate={"enabled": True},
            max_rows=20,
            primary_key_columns=["id"],
            foreign_keys=[foreign_key],
            upsert={"enabled": True},
            fullText={"enabled": False},
        )
    )
    declared = DeclaredForeignKey("accounts", ("account_id",), "account", "public", "account", ("id",))
    assert found == TableDirectives(
        "Blog", "Posts", True, True, 20, ("id",), (declared,), frozenset({"upsert"})
    )
    assert problems == []


def test_names_of_columns_functions_and_foreign_keys_are_read() -> None:
    """The smaller objects have a name and a description, a foreign key has two names."""
    problems: list[Problem] = []
    text = comment(name="emailAddress", description="Where to write")
    assert field_directives("c", text, problems) == FieldDirectives("emailAddress", "Where to write")
    assert field_directives("f", text, problems) == FieldDirectives("emailAddress", "Where to write")
    text = comment(local_name="blogs", foreign_name="owner")
    assert foreign_key_directives("k", text, problems) == ForeignKeyDirectives("blogs", "owner")
    text = comment(foreign_name="owner")
    assert foreign_key_directives("k", text, problems) == ForeignKeyDirectives(None, "owner")
    assert problems == []


def test_an_enums_name_and_mappings_are_read() -> None:
    """Mappings go from SQL label to GraphQL value."""
    problems: list[Problem] = []
    text = comment(name="Cipher", mappings={"aead-ietf": "AEAD_IETF"})
    found = enum_directives("e", text, ("aead-ietf", "plain"), problems)
    assert found == EnumDirectives("Cipher", None, {"aead-ietf": "AEAD_IETF"})
    assert problems == []


@pytest.mark.parametrize("text", [None, "", "A plain comment.", "Write @graphql( to configure", "@graphql()"])
def test_a_comment_without_a_directive_says_nothing(text: str | None) -> None:
    """An ordinary comment is neither a directive nor a problem."""
    assert table(text) == (None, [])


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("@graphql({name: 1})", "is not JSON"),
        ('@graphql({"max_rows": NaN})', "is not JSON"),
        ('@graphql(["name"])', "must be a JSON object"),
        ('@graphql({"name": "A"} x)', "expected ) after the JSON"),
        ("@graphql(" + "[" * 100_000 + ")", "nested too deeply"),
    ],
)
def test_a_directive_that_cannot_be_read_is_ignored_as_a_whole(text: str, mistake: str) -> None:
    """The object is then taken as if it had no directive."""
    found, problems = table(text)
    assert found is None
    assert len(problems) == 1
    assert mistake in problems[0]
    assert "ignored" in problems[0]


def test_parentheses_and_newlines_inside_and_after_the_json_do_no_harm() -> None:
    """The JSON value itself says where it ends."""
    found, problems = table('See (this). @graphql(\n{"description": "f(x)\\n@graphql(y)"}\n) and (that)')
    assert found == TableDirectives(description="f(x)\n@graphql(y)")
    assert problems == []


def test_of_several_directives_in_a_comment_the_first_one_counts() -> None:
    """The second one is reported."""
    found, problems = table('@graphql({"name": "A"}) @graphql({"name": "B"})')
    assert found == TableDirectives(name="A")
    assert "several directives" in problems[0]


def test_a_table_says_how_many_rows_rest_answers() -> None:
    """Beside what it says to GraphQL, or alone."""
    text = 'A @rest({"max_rows": 100}) b @graphql({"max_rows": 5}) c'
    assert table(text) == (TableDirectives(max_rows=5, rest_max_rows=100), [])
    assert table('@rest({"max_rows": 7})') == (TableDirectives(rest_max_rows=7), [])


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('@rest({"max_rows": 0})', "@rest: max_rows must be an integer"),
        ('@rest({"max_rows": "9"})', "@rest: max_rows must be an integer"),
        ('@rest({"name": "x"})', "@rest: unknown key 'name'"),
        ("@rest(max_rows)", "@rest: the directive is not JSON"),
        ('@rest(["max_rows"])', "@rest: the directive must be a JSON object"),
        ('@rest({"max_rows": 9} x)', "expected ) after the JSON"),
    ],
)
def test_a_rest_directive_that_cannot_be_used_is_a_problem(text: str, mistake: str) -> None:
    """It is named and the table has the limit of all."""
    directives, problems = table(text)
    assert directives is None
    assert len(problems) == 1
    assert mistake in problems[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, None),
        ("", None),
        ("Plain (words)", "Plain (words)"),
        ('@graphql({"name": "a)"})', None),
        ('Title\n\nMore. @rest( {"max_rows": 1} )\n@graphql({"a": {}})', "Title\n\nMore."),
        ('One @rest({}) two @rest({"x": ")"}) three', "One two three"),
        ("Broken @graphql({ left) alone", "Broken @graphql({ left) alone"),
    ],
)
def test_people_read_comments_without_directives(text: str | None, words: str | None) -> None:
    """What cannot be read stays, so that somebody sees it."""
    assert without_directives(text) == words


@pytest.mark.parametrize(
    ("member", "value", "mistake"),
    [
        ("name", "no name", "name must be a GraphQL name"),
        ("name", "__Type", "name must be a GraphQL name"),
        ("name", 7, "name must be a GraphQL name"),
        ("description", ["x"], "description must be a string"),
        ("description", "\ud800", "description must be a string"),
        ("description", "\0", "description must be a string"),
        ("totalCount", True, "totalCount must be"),
        ("totalCount", {"enabled": "yes"}, "totalCount must be"),
        ("aggregate", {}, "aggregate must be"),
        ("max_rows", "20", "max_rows must be an integer"),
        ("max_rows", True, "max_rows must be an integer"),
        ("max_rows", 0, "max_rows must be an integer"),
        ("max_rows", 2.5, "max_rows must be an integer"),
        ("max_rows", 2**31, "max_rows must be an integer"),
        ("primary_key_columns", "id", "primary_key_columns must be a non-empty list"),
        ("primary_key_columns", [], "primary_key_columns must be a non-empty list"),
        ("primary_key_columns", ["nope"], "unknown column 'nope'"),
        ("primary_key_columns", ["id", "id"], "twice"),
        ("foreign_keys", {}, "foreign_keys must be a list"),
        ("foreign_keys", ["x"], "foreign_keys[0] must be an object"),
        ("upsert", 1, "upsert must be"),
        ("totalcount", {"enabled": True}, "unknown key 'totalcount'"),
    ],
)
def test_a_bad_member_is_named_and_the_others_count(member: str, value: Any, mistake: str) -> None:
    """One mistake costs that member alone."""
    members = {"aggregate": {"enabled": True}} if member != "aggregate" else {"max_rows": 9}
    found, problems = table(comment(**members, **{member: value}))
    expected = TableDirectives(aggregate=True) if member != "aggregate" else TableDirectives(max_rows=9)
    assert found == expected
    assert len(problems) == 1
    assert mistake in problems[0]


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"local_columns": ["nope"]}, "unknown column 'nope'"),
        ({"local_columns": ["id", "account_id"]}, "different numbers of"),
        ({"foreign_table": None}, "needs foreign_table"),
        ({"foreign_columns": "id"}, "needs foreign_columns"),
    ],
)
def test_a_foreign_key_that_does_not_fit_is_left_out(change: dict[str, Any], mistake: str) -> None:
    """The other declared keys of the table stay."""
    good = {
        "local_columns": ["account_id"],
        "foreign_schema": "public",
        "foreign_table": "account",
        "foreign_columns": ["id"],
    }
    found, problems = table(comment(foreign_keys=[{**good, **change}, good]))
    assert found is not None
    assert [key.local_columns for key in found.foreign_keys] == [("account_id",)]
    assert any(mistake in problem and "is ignored" in problem for problem in problems)


@pytest.mark.parametrize(
    ("mappings", "kept", "mistake"),
    [
        ({"a-b": "A_B", "nope": "X"}, {"a-b": "A_B"}, "unknown label 'nope'"),
        ({"a-b": "a b"}, {}, "an invalid GraphQL enum value"),
        ({"a-b": "true"}, {}, "an invalid GraphQL enum value"),
        ({"a-b": "c"}, {}, "two labels to the same value"),
        ([], {}, "mappings must be an object"),
    ],
)
def test_a_bad_enum_mapping_is_left_out(mappings: Any, kept: dict[str, str], mistake: str) -> None:
    """An enum's labels keep their own text then."""
    problems: list[Problem] = []
    found = enum_directives("enum e", comment(mappings=mappings), ("a-b", "c"), problems)
    assert found is not None
    assert found.mappings == kept
    assert mistake in problems[0].message


@given(st.text(), st.sampled_from(["", '{"name": ', "[", "{}", '{"max_rows": 1}']))
def test_no_comment_whatever_makes_a_reader_fail(text: str, inside: str) -> None:
    """A comment is data of the database's users: it never raises."""
    problems: list[Problem] = []
    for candidate in (text, f"@graphql({inside}{text})", f"@graphql({json.dumps({text: text})})"):
        table_directives("t", candidate, COLUMNS, problems)
        enum_directives("t", candidate, COLUMNS, problems)
        schema_directives("t", candidate, problems)


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: key != "name"), st.integers(), max_size=3))
def test_every_unknown_key_is_reported_once(members: dict[str, int]) -> None:
    """And what is known beside it counts."""
    unknown = {key: value for key, value in members.items() if key != "description"}
    problems: list[Problem] = []
    found = field_directives("c", comment(name="ok", **unknown), problems)
    assert found == FieldDirectives("ok")
    assert len(problems) == len(unknown)


@given(st.text(alphabet="_aZ09é- ", max_size=4))
def test_names_follow_the_languages_grammar(text: str) -> None:
    """Letters, digits and underscores of ASCII, no digit first, and not two underscores first."""
    plain = all(letter in "_aZ09" for letter in text) and text != "" and text[0] not in "09"
    assert is_graphql_name(text) == (plain and text[:2] != "__")


def test_a_declared_foreign_key_becomes_one_of_the_catalogs() -> None:
    """It has a name of its own, its directives' names, and is one-to-one over the declared key."""
    made = MadeUp()
    account = made.table("account", "id", "name")
    view = made.table(
        "profile",
        *("account_id", "name"),
        key=(),
        kind="v",
        comment=comment(
            primary_key_columns=["account_id"],
            foreign_keys=[
                {
                    "local_name": "profile",
                    "local_columns": ["account_id"],
                    "foreign_name": "holder",
                    "foreign_schema": "public",
                    "foreign_table": "account",
                    "foreign_columns": ["id"],
                }
            ],
        ),
    )
    catalog = made.catalog()
    assert catalog.problems == ()
    assert catalog.primary_key(catalog.tables[view]) == ("account_id",)
    (key,) = catalog.foreign_keys
    assert (key.table, key.columns, key.foreign_table, key.foreign_columns) == (
        view,
        ("account_id",),
        account,
        ("id",),
    )
    assert key.unique
    assert key.declared
    assert catalog.directives.foreign_key(view, key.name) == ForeignKeyDirectives("profile", "holder")


@pytest.mark.parametrize(
    ("foreign_table", "foreign_columns", "mistake"),
    [
        ("nope", ["id"], "table public.nope is not exposed"),
        ("account", ["nope"], "unknown column 'nope'"),
        ("account", ["name"], "cannot be compared"),
    ],
)
def test_a_declared_foreign_key_to_nowhere_is_left_out(
    foreign_table: str, foreign_columns: list[str], mistake: str
) -> None:
    """The view keeps the rest of its directive."""
    made = MadeUp()
    made.table("account", "id", "name")
    declared = {
        "local_columns": ["account_id"],
        "foreign_schema": "public",
        "foreign_table": foreign_table,
        "foreign_columns": foreign_columns,
    }
    text = comment(primary_key_columns=["account_id"], foreign_keys=[declared])
    view = made.table("profile", "account_id", key=(), kind="v", comment=text)
    catalog = made.catalog()
    assert catalog.foreign_keys == ()
    assert catalog.primary_key(catalog.tables[view]) == ("account_id",)
    (problem,) = catalog.problems
    assert problem.place == "table public.profile"
    assert mistake in problem.message
