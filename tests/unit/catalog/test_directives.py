"""Directives in comments."""

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
    """Return a comment that contains a directive and other words."""
    return f"About it. @graphql({json.dumps(members)}) More (of it)."


def table(text: str | None) -> tuple[TableDirectives | None, list[str]]:
    """Return the directives in a table's comment and the messages of problems."""
    problems: list[Problem] = []
    return table_directives("table x", text, COLUMNS, problems), [problem.message for problem in problems]


def test_every_schema_key_is_parsed() -> None:
    problems: list[Problem] = []
    text = comment(inflect_names=True, max_rows=100, introspection=True)
    assert schema_directives("schema s", text, problems) == SchemaDirectives(True, 100, True)
    assert problems == []


def test_every_table_key_is_parsed() -> None:
    foreign_key = {
        "local_name": "accounts",
        "local_columns": ["account_id"],
        "foreign_name": "account",
        "foreign_schema": "public",
        "foreign_table": "account",
        "foreign_columns": ["id"],
    }
    directives, problems = table(
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
    assert directives == TableDirectives(
        "Blog", "Posts", True, True, 20, ("id",), (declared,), frozenset({"upsert"})
    )
    assert problems == []


def test_names_of_columns_functions_and_foreign_keys_are_parsed() -> None:
    problems: list[Problem] = []
    text = comment(name="emailAddress", description="Where to write")
    assert field_directives("c", text, problems) == FieldDirectives("emailAddress", "Where to write")
    assert field_directives("f", text, problems) == FieldDirectives("emailAddress", "Where to write")
    text = comment(local_name="blogs", foreign_name="owner")
    assert foreign_key_directives("k", text, problems) == ForeignKeyDirectives("blogs", "owner")
    text = comment(foreign_name="owner")
    assert foreign_key_directives("k", text, problems) == ForeignKeyDirectives(None, "owner")
    assert problems == []


def test_enum_name_and_mappings_are_parsed() -> None:
    """Mappings map SQL labels to GraphQL values."""
    problems: list[Problem] = []
    text = comment(name="Cipher", mappings={"aead-ietf": "AEAD_IETF"})
    directives = enum_directives("e", text, ("aead-ietf", "plain"), problems)
    assert directives == EnumDirectives("Cipher", None, {"aead-ietf": "AEAD_IETF"})
    assert problems == []


@pytest.mark.parametrize("text", [None, "", "A plain comment.", "Write @graphql( to configure", "@graphql()"])
def test_comment_without_directive_is_ignored(text: str | None) -> None:
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
def test_malformed_directive_is_ignored(text: str, mistake: str) -> None:
    directives, problems = table(text)
    assert directives is None
    assert len(problems) == 1
    assert mistake in problems[0]
    assert "ignored" in problems[0]


def test_parentheses_and_newlines_around_the_json_are_allowed() -> None:
    directives, problems = table('See (this). @graphql(\n{"description": "f(x)\\n@graphql(y)"}\n) and (that)')
    assert directives == TableDirectives(description="f(x)\n@graphql(y)")
    assert problems == []


def test_first_of_several_directives_is_used() -> None:
    directives, problems = table('@graphql({"name": "A"}) @graphql({"name": "B"})')
    assert directives == TableDirectives(name="A")
    assert "several directives" in problems[0]


def test_table_limits_the_rows_of_rest_responses() -> None:
    text = 'A @rest({"max_rows": 100}) b @graphql({"max_rows": 5}) c'
    assert table(text) == (TableDirectives(max_rows=5, rest_max_rows=100), [])
    assert table('@rest({"max_rows": 7})') == (TableDirectives(rest_max_rows=7), [])


@pytest.mark.parametrize(
    "value",
    ["no-store", "public, max-age=60", "private,max-age=0, must-revalidate, stale-while-revalidate=5"],
)
def test_table_sets_the_caching_of_rest_responses(value: str) -> None:
    assert table(f'@rest({{"cache_control": "{value}"}})') == (TableDirectives(rest_cache_control=value), [])


@pytest.mark.parametrize(
    "value", ['""', '"max-age"', '"max-age=1d"', '"no-store;"', '"private max-age=1"', '"a\\r\\nb: c"', "60"]
)
def test_invalid_caching_is_a_problem(value: str) -> None:
    directives, [mistake] = table(f'@rest({{"cache_control": {value}}})')
    assert directives is None
    assert mistake == (
        "@rest: cache_control must be a Cache-Control header of a response, "
        'such as "private, max-age=60"; it is ignored'
    )


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
def test_invalid_rest_directive_is_a_problem(text: str, mistake: str) -> None:
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
def test_descriptions_omit_directives(text: str | None, words: str | None) -> None:
    """Malformed directives remain visible, so that users notice them."""
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
def test_invalid_member_is_reported_and_others_are_used(member: str, value: Any, mistake: str) -> None:
    members = {"aggregate": {"enabled": True}} if member != "aggregate" else {"max_rows": 9}
    directives, problems = table(comment(**members, **{member: value}))
    expected = TableDirectives(aggregate=True) if member != "aggregate" else TableDirectives(max_rows=9)
    assert directives == expected
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
def test_invalid_foreign_key_is_ignored(change: dict[str, Any], mistake: str) -> None:
    good = {
        "local_columns": ["account_id"],
        "foreign_schema": "public",
        "foreign_table": "account",
        "foreign_columns": ["id"],
    }
    directives, problems = table(comment(foreign_keys=[{**good, **change}, good]))
    assert directives is not None
    assert [key.local_columns for key in directives.foreign_keys] == [("account_id",)]
    assert any(mistake in problem and "is ignored" in problem for problem in problems)


@pytest.mark.parametrize(
    ("mappings", "expected", "mistake"),
    [
        ({"a-b": "A_B", "nope": "X"}, {"a-b": "A_B"}, "unknown label 'nope'"),
        ({"a-b": "a b"}, {}, "an invalid GraphQL enum value"),
        ({"a-b": "true"}, {}, "an invalid GraphQL enum value"),
        ({"a-b": "c"}, {}, "two labels to the same value"),
        ([], {}, "mappings must be an object"),
    ],
)
def test_invalid_enum_mapping_is_ignored(mappings: Any, expected: dict[str, str], mistake: str) -> None:
    problems: list[Problem] = []
    directives = enum_directives("enum e", comment(mappings=mappings), ("a-b", "c"), problems)
    assert directives is not None
    assert directives.mappings == expected
    assert mistake in problems[0].message


@given(st.text(), st.sampled_from(["", '{"name": ', "[", "{}", '{"max_rows": 1}']))
def test_no_comment_makes_a_parser_fail(text: str, inside: str) -> None:
    problems: list[Problem] = []
    for candidate in (text, f"@graphql({inside}{text})", f"@graphql({json.dumps({text: text})})"):
        table_directives("t", candidate, COLUMNS, problems)
        enum_directives("t", candidate, COLUMNS, problems)
        schema_directives("t", candidate, problems)


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: key != "name"), st.integers(), max_size=3))
def test_every_unknown_key_is_reported_once(members: dict[str, int]) -> None:
    unknown = {key: value for key, value in members.items() if key != "description"}
    problems: list[Problem] = []
    directives = field_directives("c", comment(name="ok", **unknown), problems)
    assert directives == FieldDirectives("ok")
    assert len(problems) == len(unknown)


@given(st.text(alphabet="_aZ09é- ", max_size=4))
def test_names_follow_the_graphql_grammar(text: str) -> None:
    """Names consist of ASCII letters, digits and underscores, without a leading digit or ``__``."""
    plain = all(letter in "_aZ09" for letter in text) and text != "" and text[0] not in "09"
    assert is_graphql_name(text) == (plain and text[:2] != "__")


def test_declared_foreign_key_is_added_to_the_catalog() -> None:
    builder = MadeUp()
    account = builder.table("account", "id", "name")
    view = builder.table(
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
    catalog = builder.catalog()
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
def test_declared_foreign_key_without_valid_target_is_ignored(
    foreign_table: str, foreign_columns: list[str], mistake: str
) -> None:
    builder = MadeUp()
    builder.table("account", "id", "name")
    declared = {
        "local_columns": ["account_id"],
        "foreign_schema": "public",
        "foreign_table": foreign_table,
        "foreign_columns": foreign_columns,
    }
    text = comment(primary_key_columns=["account_id"], foreign_keys=[declared])
    view = builder.table("profile", "account_id", key=(), kind="v", comment=text)
    catalog = builder.catalog()
    assert catalog.foreign_keys == ()
    assert catalog.primary_key(catalog.tables[view]) == ("account_id",)
    (problem,) = catalog.problems
    assert problem.place == "table public.profile"
    assert mistake in problem.message
