"""Comments that look like directives but have no effect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.advisor.directives import idle_directives
from dataapi.database.sql_text import quote_literal
from hypothesis import given
from hypothesis import strategies as st
from support.catalog import MadeUp

TABLE = {"object": "table public.note", "why": None, "fix": "comment on table public.note is "}
VALUES = st.sampled_from([1, "x", True, [], ["id"], ["nothing"], {"enabled": True}, {"enabled": 1}, {"a": 1}])
KEYS = st.sampled_from(
    ["name", "totalCount", "max_rows", "primary_key_columns", "foreign_keys", "nam", "a.b"]
)
FOREIGN_KEYS = st.lists(
    st.fixed_dictionaries(
        {
            "local_columns": st.sampled_from([["id"], ["nothing"], ["id", "body"], []]),
            "foreign_schema": st.just("public"),
            "foreign_table": st.sampled_from(["other", "nothing"]),
            "foreign_columns": st.just(["id"]),
        },
        optional={"local_name": st.sampled_from(["others", "1"]), "locl_name": st.just("x")},
    ),
    max_size=3,
)
DIRECTIVES = st.builds(
    lambda members, keys: members | ({"foreign_keys": keys} if keys else {}),
    st.dictionaries(KEYS, VALUES),
    FOREIGN_KEYS,
)
TEXTS = st.sampled_from(["", "Notes ", "It's @graphql(", ")", '@rest({"max_rows": 5})', "@rest({})", "\\"])


def idle(
    comment: str, *, key: tuple[str, ...] = ("id",), row: dict[str, Any] | None = None
) -> list[tuple[str, ...]]:
    """Return the findings about a comment on the table "note"."""
    database = MadeUp()
    database.table("note", "id", "body", comment=comment, key=key)
    database.table("other", "id")
    return list(idle_directives(database.catalog(), [{**(row or TABLE), "comment": comment}]))


def left(comment: str, **named: Any) -> str | None:
    """Return the comment that the finding's fix sets, None if the fix removes it."""
    [(_, _, fix)] = idle(comment, **named)
    start = "comment on table public.note is "
    assert fix.startswith(start)
    literal = fix.removeprefix(start).removesuffix(";").strip()
    if literal == "null":
        return None
    text = literal.removeprefix("E")[1:-1].replace("''", "'")
    return text.replace("\\\\", "\\") if literal.startswith("E") else text


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ('@graphql({"nam": "x"})', None),
        ('Notes @graphql({"nam": "x"}) of all', "Notes of all"),
        ('Notes @graphql({"nam": "x", "name": "Memo"})', 'Notes @graphql({"name": "Memo"})'),
        ('@graphql({"description": "é", "totalCount": {"enabled": true, "x": 1}})',
         '@graphql({"description": "é", "totalCount": {"enabled": true}})'),
        ('@graphql({"max_rows": 0}) @rest({"max_rows": 5})', '@rest({"max_rows": 5})'),
        ('@graphql({"name": "Memo"}) @rest({"max_rows": 0})', '@graphql({"name": "Memo"})'),
        ("Notes @graphql(name: Memo)", "Notes"),
        ('@graphql(["name"])', None),
        ('@graphql({"name": "Memo"}) @graphql({"max_rows": 5})', '@graphql({"name": "Memo"})'),
        ("It's \\ @graphql(x)", "It's \\"),
    ],
)  # fmt: skip
def test_valid_part_of_a_comment_is_kept(comment: str, expected: str | None) -> None:
    assert left(comment) == expected


def test_foreign_keys_are_removed_one_by_one() -> None:
    valid = {
        "local_columns": ["id"],
        "foreign_schema": "public",
        "foreign_table": "other",
        "foreign_columns": ["id"],
    }
    members = {"foreign_keys": [{**valid, "foreign_table": "nothing"}, {**valid, "x": 1}]}
    assert left(f"@graphql({json.dumps(members)})") == f"@graphql({json.dumps({'foreign_keys': [valid]})})"


def test_tables_without_a_key_have_no_graphql_directives() -> None:
    comment = 'Notes @graphql({"totalCount": {"enabled": true}}) @rest({"max_rows": 5})'
    assert left(comment, key=()) == 'Notes @rest({"max_rows": 5})'
    assert idle(comment, key=())[0][1] == "GraphQL leaves out tables without a primary key"
    assert idle('@graphql({"primary_key_columns": ["id"]})', key=()) == []
    assert idle('@rest({"max_rows": 5})', key=()) == []


def test_directives_of_other_objects_are_removed() -> None:
    row = {"object": "index public.i", "why": "reason", "fix": "comment on index public.i is "}
    assert idle('The key @graphql({"name": "x"})', row=row) == [
        ("index public.i", "reason", f"comment on index public.i is {quote_literal('The key')};")
    ]


@given(directive=DIRECTIVES, before=TEXTS, after=TEXTS, key=st.sampled_from([("id",), ()]))
def test_fixed_comments_have_no_findings(
    directive: dict[str, Any], before: str, after: str, key: tuple[str, ...]
) -> None:
    comment = f"{before}@graphql({json.dumps(directive)}){after}"
    if idle(comment, key=key):
        fixed = left(comment, key=key)
        assert fixed is None or idle(fixed, key=key) == []
