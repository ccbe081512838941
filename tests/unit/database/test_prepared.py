"""A message becomes one text with places, and nothing of a request is ever part of that text."""

from __future__ import annotations

import re

import pytest
from dataapi.database.message import Block, Bound, Defaults, Message, Statement
from dataapi.database.prepared import Prepared, compose_inlined
from dataapi.database.sql_text import quote_literal
from dataapi.http.errors import DatabaseError
from hypothesis import given
from hypothesis import strategies as st

LOOKUP = Statement("select $1 % 2, 'it''s 100%' from \"o%dd\" where b = $2", ("int", "unknown"))
VALUE = st.none() | st.text(max_size=20)


def lookup(role: str = "anon", claims: str = "{}", one: str | None = "1", two: str | None = "x") -> Message:
    """Make a message of the statement with one setting."""
    return Message(role, (("request.jwt.claims", claims),), (Bound(LOOKUP, (one, two)),))


def test_the_first_message_prepares_and_the_next_executes() -> None:
    """One string each: identity, then what is to be prepared, then the execution."""
    prepared = Prepared("p1f_")
    opening = (
        "select where pg_catalog.num_nonnulls(pg_catalog.set_config('role',$1,true),"
        "pg_catalog.set_config('request.jwt.claims',$2,true),"
        "pg_catalog.set_config('transaction_read_only','on',true)) operator(pg_catalog.>=) 0"
    )
    first, second = prepared.compose(lookup()), prepared.compose(lookup(claims="other", one="2"))
    assert first.text == (
        f"prepare p1f_1_(unknown,unknown) as {opening};execute p1f_1_(%s,%s);"
        "prepare p1f_2_anon(int,unknown) as select $1 %% 2, 'it''s 100%%' from \"o%%dd\" where b = $2;"
        "execute p1f_2_anon(%s,%s);"
    )
    assert first.values == ["anon", "{}", "1", "x"]
    assert (first.changes, first.reuses) == (True, False)
    assert second.text == "execute p1f_1_(%s,%s);execute p1f_2_anon(%s,%s);"
    assert second.values == ["anon", "other", "2", "x"]
    assert (second.changes, second.reuses) == (False, True)


def test_another_role_has_a_plan_of_its_own() -> None:
    """The same statement is prepared once for each role, and what takes the role on for all of them."""
    prepared = Prepared()
    texts = [prepared.compose(lookup(role=role)).text for role in ("anon", "authenticated", "anon")]
    assert [text.count("prepare ") for text in texts] == [2, 1, 0]
    assert "execute p3_authenticated(" in texts[1]


def test_without_preparing_the_values_stand_in_the_slots() -> None:
    """What always holds travels too, and slots are cast."""
    composed = compose_inlined(lookup(), Defaults(settings=(("search_path", 'app, "100%"'),)))
    assert composed.text == (
        "select where pg_catalog.num_nonnulls(pg_catalog.set_config('role',%s,true),"
        "pg_catalog.set_config('search_path','app, \"100%%\"',true),"
        "pg_catalog.set_config('request.jwt.claims',%s,true),"
        "pg_catalog.set_config('transaction_read_only','on',true)) operator(pg_catalog.>=) 0;"
        "select %s::int %% 2, 'it''s 100%%' from \"o%%dd\" where b = %s;"
    )
    assert composed.values == ["anon", "{}", "1", "x"]


@given(st.text(min_size=1).filter(lambda role: role != "none"), st.text(), VALUE, VALUE)
def test_no_request_changes_the_text(role: str, claims: str, one: str | None, two: str | None) -> None:
    """Whatever role, claims and values are, the text is the same but for a harmless part of a name."""
    message = lookup(role, claims, one, two)
    composed = Prepared().compose(message)
    names = set(re.findall(r"(?:prepare|execute) ([^ (]+)\(", composed.text))
    [name] = names - {"p1_"}
    assert re.fullmatch(r"p2_[a-z0-9_]{0,30}", name)
    assert composed.text.replace(name, "p2_anon") == Prepared().compose(lookup()).text
    assert composed.values == [role, claims, one, two]
    assert compose_inlined(message).text == compose_inlined(lookup()).text


@pytest.mark.parametrize("role", ["", "none"])
def test_no_message_without_a_role(role: str) -> None:
    """A message never runs as the login role."""
    for compose in (Prepared().compose, compose_inlined):
        with pytest.raises(DatabaseError) as caught:
            compose(lookup(role=role))
        assert caught.value.status == 401


def test_a_wrong_number_of_values_is_noticed_before_anything_is_remembered() -> None:
    """A mistake in the caller leaves the books as they were."""
    prepared = Prepared()
    wrong = Message("anon", (), (Bound(LOOKUP, ("1",)),))
    with pytest.raises(ValueError, match="1 values for 2 slots"):
        prepared.compose(wrong)
    with pytest.raises(ValueError, match="1 values for 2 slots"):
        compose_inlined(wrong)
    assert "prepare p2_anon" in prepared.compose(lookup()).text


def test_what_the_server_has_is_kept_and_the_rest_goes() -> None:
    """After a failure only what is really prepared is executed, and strays are deallocated."""
    prepared = Prepared()
    for role in ("anon", "authenticated"):
        prepared.compose(lookup(role=role))
    prepared.reconcile(["p1_", "p3_authenticated", "stray"])
    again = prepared.compose(lookup(role="authenticated"))
    assert again.text.startswith("deallocate stray;execute p1_(%s,%s);execute p3_authenticated(")
    assert again.changes
    assert "prepare p4_anon(" in prepared.compose(lookup()).text


def test_settings_of_a_request_reach_the_workers_of_a_cluster() -> None:
    """By a block of the same message, whose text has the values."""
    defaults = Defaults(distributed=True)
    for composed in (Prepared().compose(lookup(), defaults), compose_inlined(lookup(), defaults)):
        before, after = composed.text.split("do %s;")
        assert "set_config('role'" in before
        assert "set_config('citus.propagate_set_commands','local',true)" in before
        assert "request.jwt.claims" not in before
        assert 'from "o%%dd"' in after
        [block] = [value for value in composed.values if str(value).startswith("begin ")]
        assert block == """begin set local request.jwt.claims = '{}';end"""
    assert "do %s" not in compose_inlined(lookup()).text


def test_values_of_a_block_are_quoted() -> None:
    settings = (("request.headers", "it's \\ $dataapi$;"), ("statement_timeout", "5"))
    message = lookup()._replace(settings=settings)
    composed = compose_inlined(message, Defaults(distributed=True))
    [block] = [value for value in composed.values if str(value).startswith("begin ")]
    assert block == "begin set local request.headers =  E'it''s \\\\ $dataapi$;';end"


def test_a_message_that_says_nothing_of_a_request_takes_no_block() -> None:
    """Remembered texts tell such messages apart."""
    prepared, defaults = Prepared(), Defaults(distributed=True)
    for _ in range(3):
        assert "do %s" in prepared.compose(lookup(), defaults).text
        assert "do %s" not in prepared.compose(lookup()._replace(settings=()), defaults).text


BLOCK = Block("begin execute ", ";end")
IN_BLOCK = Statement("select $1, '%'", ("text",), block=BLOCK)


@given(VALUE)
def test_a_block_runs_its_statement_by_a_literal(value: str | None) -> None:
    """Messages prepare the statement before the block; what is not prepared stands in the block."""
    message = Message("anon", (), (Bound(IN_BLOCK, (value,)),))
    literal = "null" if value is None else quote_literal(value)
    prepared = Prepared()
    first, second = prepared.compose(message), prepared.compose(message)
    assert first.text.endswith(";prepare p2_anon(text) as select $1, '%%';do %s;")
    assert second.text == "execute p1_(%s);do %s;"
    executed = quote_literal(f"execute p2_anon({literal});")
    assert first.values == second.values == ["anon", f"begin execute {executed};end"]
    inlined = compose_inlined(message)
    assert inlined.values[-1] == BLOCK.around(f"select {literal}::text, '%'")
