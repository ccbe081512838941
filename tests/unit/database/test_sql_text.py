"""Parameters in SQL texts, and SQL that the daemon adds to messages."""

from __future__ import annotations

import re

import pytest
from dataapi.database.sql_text import (
    Template,
    as_login_role,
    comment,
    opening,
    qualify_builtins,
    search_path,
    split,
    substitute_literals,
    with_types,
)
from hypothesis import given
from hypothesis import strategies as st


def substitute(text: str, *literals: str) -> str:
    """Return a statement with literals for its parameters."""
    return substitute_literals(text, (), literals)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select $1, $2, $1", "select <a>, <b>, <a>"),
        ("select $1::int", "select <a>::int"),
        ("select '$1', $2", "select '$1', <b>"),
        ("select 'it''s $1', $2", "select 'it''s $1', <b>"),
        (r"select e'\'$1', $2", r"select e'\'$1', <b>"),
        (r"select E'\\', $1", r"select E'\\', <a>"),
        ('select "a $1 ""b"" $2", $1', 'select "a $1 ""b"" $2", <a>'),
        ("select $$ $1 ' $$, $2", "select $$ $1 ' $$, <b>"),
        ("select $x$ $1 $$ $2 $x$, $1", "select $x$ $1 $$ $2 $x$, <a>"),
        ("select a$1, _$2, é$1, $1", "select a$1, _$2, é$1, <a>"),
        ("select 1 -- $1 '\n, $2", "select 1 -- $1 '\n, <b>"),
        ("select /* $1 ' */ $2", "select /* $1 ' */ <b>"),
        ("select 5 % $1, '50%'", "select 5 % <a>, '50%'"),
        ('select "%s %(x)s %"', 'select "%s %(x)s %"'),
        ("select a[$1:$2]", "select a[<a>:<b>]"),
        ("select $1", "select <a>"),
    ],
)
def test_parameters_are_found_outside_of_quotes_and_comments(text: str, expected: str) -> None:
    assert substitute(text, "<a>", "<b>") == expected


def test_typed_parameters_are_cast() -> None:
    text, types = "select $1, $2, $3", ("int", "unknown", 's."50%"[]')
    assert with_types(text, types) == Template('select $1::int, $2, $3::s."50%"[]', (0, 1, 2))
    assert (
        substitute_literals(text, types, ("'1'", "'x'", "'{}'")) == "select '1'::int, 'x', '{}'::s.\"50%\"[]"
    )


def test_parameters_are_numbered_by_first_use() -> None:
    template = with_types("select $3, $1, $3", ("int", "int", "text"))
    assert template == Template("select $1::text, $2::int, $1::text", (2, 0))
    assert template.arrange(["a", "b", "c"]) == ["c", "a"]


def test_two_digit_parameters_are_supported() -> None:
    text = ", ".join(f"${number}" for number in range(1, 13))
    values = [f"v{number}" for number in range(1, 13)]
    assert substitute(text, *values) == ", ".join(values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1", [("select 1", ())]),
        ("select $1; select $2, $1;", [("select $1", (0,)), ("select $1, $2", (1, 0))]),
        ("select ';'; select \";\"; -- a; b\n select 2", ["select ';'", 'select ";"', "-- a; b\n select 2"]),
        ("do $$ begin; end $$; /* ; */ select 1; -- end;\n", ["do $$ begin; end $$", "/* ; */ select 1"]),
        (" ; ;", []),
    ],
)
def test_statements_are_split_at_semicolons(text: str, expected: list[object]) -> None:
    assert split(text) == tuple(
        Template(one, ()) if isinstance(one, str) else Template(*one)  # type: ignore[misc]
        for one in expected
    )


PARTS = st.lists(
    st.one_of(
        st.text("abc_ (),=", max_size=5),
        st.text(max_size=6).map(lambda text: "'" + text.replace("'", "''") + "'"),
        st.text(max_size=6).map(lambda text: '"' + text.replace('"', '""') + '"'),
        st.just("%"),
        st.just(" $1 "),
        st.just("($2)"),
    ),
    max_size=12,
)


@given(PARTS)
def test_substituting_parameters_by_themselves_returns_the_text(parts: list[str]) -> None:
    text = " ".join(parts)
    assert substitute(text, "$1", "$2") == text


def test_opening_statement_sets_role_and_settings() -> None:
    text = opening(("request.jwt.claims", "app.x"), (("search_path", '"o\'dd"'),), False)
    assert text == (
        "select where pg_catalog.num_nonnulls(pg_catalog.set_config('role',$1,true),"
        "pg_catalog.set_config('search_path','\"o''dd\"',true),"
        "pg_catalog.set_config('request.jwt.claims',$2,true),pg_catalog.set_config('app.x',$3,true))"
        " operator(pg_catalog.>=) 0"
    )
    assert "pg_catalog.set_config('transaction_read_only','on',true)) " in opening((), (), True)


def test_guarded_opening_checks_before_it_sets_anything() -> None:
    start, action = (
        "select where case when ",
        " then pg_catalog.num_nonnulls(pg_catalog.set_config('role',$1,true)",
    )
    for read_only, names in ((True, 2), (False, 3)):
        text = opening((), (), read_only, guarded=True)
        condition, _, rest = text.removeprefix(start).partition(action)
        assert condition.count("current_setting('transaction_") == names
        assert ("pg_is_in_recovery()" in condition) is not read_only
        assert rest.endswith("::boolean end")


def test_opening_supports_any_number_of_settings() -> None:
    """PostgreSQL limits the number of function arguments."""
    text = opening(tuple(f"app.x{number}" for number in range(250)), (), False)
    assert [len(group.split("),")) for group in text.split("num_nonnulls(")[1:]] == [100, 100, 51]
    assert text.count("$251,") == 1


def test_internal_statements_run_as_the_login_role() -> None:
    assert as_login_role((("DateStyle", "100%"),)) == (
        "select where pg_catalog.num_nonnulls(pg_catalog.set_config('role','none',true),"
        "pg_catalog.set_config('DateStyle','100%',true)) operator(pg_catalog.>=) 0"
    )


@pytest.mark.parametrize(
    "name", ["", "a b", "a'b", "a%sb", "a;b", "a.", ".a", "1a", "é", "role", "Role", "session_authorization"]
)
def test_invalid_setting_name_is_rejected(name: str) -> None:
    """A setting's name must permit neither SQL injection nor another role."""
    with pytest.raises(ValueError, match="setting is not allowed"):
        opening((name,), (), False)
    with pytest.raises(ValueError, match="setting is not allowed"):
        opening((), ((name, ""),), False)


@given(st.text(max_size=20))
def test_setting_name_cannot_inject_sql(name: str) -> None:
    try:
        text = opening((name,), (), False)
    except ValueError:
        return
    assert re.fullmatch(r"[\w$.]+", name, re.ASCII)
    assert text.count(f"'{name}',$2") == 1


def test_search_path_quotes_schemas() -> None:
    assert search_path(("public", 'o"dd, one')) == '"public", "o""dd, one"'


def test_comment_cannot_be_closed_by_its_content() -> None:
    text = comment(route="/a b", request_id="'*/ drop--", traceparent="")
    assert text == "/*request_id='%27%2A%2F%20drop--',route='%2Fa%20b'*/"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nextval('s.a + b()'::regclass)", "pg_catalog.nextval('s.a + b()'::regclass)"),
        (
            "('x'::text || upper((b.f(1))::text))",
            "('x'::text operator(pg_catalog.||) pg_catalog.upper((b.f(1))::text))",
        ),
        (
            'COALESCE((1 OPERATOR(s.+) 2), "F"."f"(- 1), (3)::numeric(10,2))',
            'COALESCE((1 OPERATOR(s.+) 2), "F"."f"(operator(pg_catalog.-) 1), (3)::numeric(10,2))',
        ),
        ('"left"((CURRENT_USER)::text, 3)', 'pg_catalog."left"((CURRENT_USER)::text, 3)'),
        (
            "('x'::timestamp with time zone AT TIME ZONE current_setting('a'::text))",
            "('x'::timestamp with time zone AT TIME ZONE pg_catalog.current_setting('a'::text))",
        ),
        ("'x'::character varying(20)", "'x'::character varying(20)"),
        ("(CURRENT_TIMESTAMP AT TIME ZONE 'utc'::text)", "(CURRENT_TIMESTAMP AT TIME ZONE 'utc'::text)"),
    ],
)
def test_builtins_are_schema_qualified(expression: str, expected: str) -> None:
    """PostgreSQL's catalog qualifies all names in expressions, except those of its own objects."""
    assert qualify_builtins(expression) == expected
