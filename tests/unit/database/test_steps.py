"""A message becomes steps whose texts hold nothing of a request."""

from __future__ import annotations

import pytest
from dataapi.database import steps
from dataapi.database.citus import BlockStatement
from dataapi.database.coordinator import CoordinatorComposer
from dataapi.database.message import Bound, Defaults, Message, Statement
from dataapi.database.sql_text import quote_literal
from dataapi.database.steps import Composer, PreparedStatements, Step, steps_of
from dataapi.http.errors import ApiError, DatabaseError
from hypothesis import given
from hypothesis import strategies as st

LOOKUP = Statement("select $1 % 2, 'it''s 100%' from \"o%dd\" where b = $2", ("int", "unknown"))
LOOKUP_TEXT = b"select $1::int % 2, 'it''s 100%' from \"o%dd\" where b = $2"
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUE = st.none() | STORABLE
UNDOING = Defaults(undo=True)
COORDINATOR = Defaults(undo=True, distributed=True)


def composer(defaults: Defaults = UNDOING, *, prepared: bool = True, shared: bool = False) -> Composer:
    """Return a composer of a new connection."""
    statements = PreparedStatements("p1f_", shared=shared) if prepared else None
    if defaults.distributed:
        return CoordinatorComposer(defaults, statements, quote_literal)
    return Composer(defaults, statements)


def lookup(role: str = "anon", claims: str = "{}", one: str | None = "1", two: str | None = "x") -> Message:
    """Make a message of the statement with one setting."""
    return Message(role, (("request.jwt.claims", claims),), (Bound(LOOKUP, (one, two)),))


def sent(found: list[Step]) -> list[Step]:
    """Return steps as they are once they were sent with success."""
    for step in found:
        if step.prepared is not None:
            step.prepared.ready = True
    return found


def texts(found: list[Step]) -> list[str]:
    """Return the beginnings of steps' texts."""
    return [step.text.decode().partition(" where ")[0][:20] for step in found]


def names(found: list[Step]) -> list[bytes | None]:
    """Return what steps are prepared as."""
    return [None if step.prepared is None else step.prepared.name for step in found]


def test_what_was_prepared_is_used_again() -> None:
    """What undoes settings, what takes on the role, and the statement."""
    own = composer()
    first, second = sent(own.compose(lookup())), own.compose(lookup(claims="other", one="2"))
    assert names(first) == names(second) == [b"p1f_1", b"p1f_2", b"p1f_3"]
    reset, opening, statement = second
    assert (reset.text, reset.values) == (b"reset all", [])
    assert opening.text.startswith(b"select where case when ")
    assert opening.values == [b"anon", b"other"]
    assert (statement.text, statement.values) == (LOOKUP_TEXT, [b"2", b"x"])


def test_another_role_has_a_plan_of_its_own() -> None:
    """The same statement is prepared once for each role, and what takes the role on for all of them."""
    own = composer()
    found = [names(sent(own.compose(lookup(role)))) for role in ("anon", "authenticated", "anon")]
    assert [each[1:] for each in found] == [
        [b"p1f_2", b"p1f_3"], [b"p1f_2", b"p1f_4"], [b"p1f_2", b"p1f_3"],
    ]  # fmt: skip


@given(STORABLE.filter(lambda role: role not in ("", "none")), STORABLE, VALUE, VALUE)
def test_no_request_changes_a_text(role: str, claims: str, one: str | None, two: str | None) -> None:
    """Whatever role, claims and values are."""
    for prepared in (True, False):
        found = composer(prepared=prepared).compose(lookup(role, claims, one, two))
        assert [step.text for step in found] == [
            step.text for step in composer(prepared=prepared).compose(lookup())
        ]
        bound = [value if value is None else value.encode() for value in (one, two)]
        assert [step.values for step in found[1:]] == [[role.encode(), claims.encode()], bound]


@pytest.mark.parametrize("value", ["a\0b", "a\ud800b"])
def test_what_postgresql_cannot_store_is_refused(value: str) -> None:
    """In a value and in a setting."""
    for wrong in (lookup(one=value), lookup(claims=value)):
        with pytest.raises(ApiError) as caught:
            composer().compose(wrong)
        assert caught.value.code == "22021"


@pytest.mark.parametrize("role", ["", "none"])
def test_no_message_without_a_role(role: str) -> None:
    """A message never runs as the login role."""
    own = composer()
    for compose in (own.compose, lambda message: own.compose_begin(message, "")):
        with pytest.raises(DatabaseError) as caught:
            compose(lookup(role=role))
        assert caught.value.status == 401


def test_a_wrong_number_of_values_is_noticed() -> None:
    """A mistake in the caller leaves the books as they were."""
    for prepared in (True, False):
        with pytest.raises(ValueError, match="1 values for 2 parameters"):
            composer(prepared=prepared).compose(Message("anon", (), (Bound(LOOKUP, ("1",)),)))


def test_a_message_that_is_sent_again_undoes_settings_before_it_begins() -> None:
    """As one does that begins its transaction itself."""
    own, undo = composer(), ["begin", "reset all", "commit"]
    assert texts(own.compose(lookup(), repeated=True)) == [*undo, "select", "select $1::int % 2, "]
    strict = lookup()._replace(isolation="SERIALIZABLE")
    assert texts(own.compose(strict))[:4] == [*undo, "begin isolation leve"]
    assert texts(own.compose(lookup()._replace(rollback=True)))[:4] == [*undo, "begin"]
    assert texts(composer(Defaults()).compose(lookup())) == ["select", "select $1::int % 2, "]


def test_what_failed_to_be_prepared_is_prepared_under_another_name() -> None:
    """A pooler may have kept the first one."""
    own = composer()
    failed = own.compose(lookup())
    for step in failed[1:]:
        assert step.prepared is not None
        step.prepared.ready = False
    assert names(own.compose(lookup())) == [b"p1f_1", b"p1f_4", b"p1f_5"]


def test_what_is_too_much_is_deallocated_by_the_next_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statement may be the longest unused one of the message that goes beyond the limit."""
    monkeypatch.setattr(steps, "MAX_PREPARED", 3)
    own = composer()
    sent(own.compose(lookup()))
    assert "deallocate" not in str(texts(sent(own.compose(lookup("authenticated")))))
    assert own.compose(lookup("authenticated"))[0] == Step(b"deallocate p1f_3")
    assert "deallocate" not in str(texts(own.compose(lookup("authenticated"))))


def test_after_a_plan_is_gone_all_is_prepared_again() -> None:
    """For a pooler with texts that it does not know."""
    own, shared = composer(), composer(Defaults(), shared=True)
    for each in (own, shared):
        sent(each.compose(lookup()))
        assert each.prepared is not None
        each.prepared.renew()
    again = own.compose(lookup(), repeated=True)
    assert again[0] == Step(b"deallocate all")
    assert names(again)[-2:] == [b"p1f_4", b"p1f_5"]
    assert [step.text.partition(b"select")[0] for step in shared.compose(lookup())] == [
        b"/*p1f_2 */", b"/*p1f_2 anon*/",
    ]  # fmt: skip


def test_a_comment_is_part_of_statements_that_are_not_prepared() -> None:
    """Each text would be another one."""
    *_, statement = composer().compose(lookup(), "/*a*/")
    assert statement == Step(b"/*a*/" + LOOKUP_TEXT, [b"1", b"x"])


def test_settings_of_a_request_reach_the_workers_of_a_cluster() -> None:
    """By a block of the same message, whose text has the values."""
    own = composer(COORDINATOR)
    message = lookup(claims="it's \\ $dataapi$;")._replace(
        settings=(("request.headers", "it's \\ $dataapi$;"), ("statement_timeout", "5"))
    )
    for found in (own.compose(message)[1:], own.compose_begin(message, "")[-4:]):
        begin, opening, block, statement = found
        assert begin.text == b"begin"
        assert b"set_config('citus.propagate_set_commands',$2,true)" in opening.text
        assert b"request.headers" not in opening.text
        assert opening.values == [b"anon", b"local", b"5"]
        made = quote_literal("begin set local request.headers =  E'it''s \\\\ $dataapi$;';end")
        assert block == Step(f"do {made}".encode())
        assert statement.text == LOOKUP_TEXT
    assert not any(step.text.startswith(b"do ") for step in own.compose(message._replace(settings=())))


@given(VALUE)
def test_a_block_runs_its_statement_by_a_literal(value: str | None) -> None:
    """A block takes no values."""
    in_block = BlockStatement("select $2, '%'", ("int", "text"), before="begin execute ", after=";end")
    message = Message("anon", (), (Bound(in_block, ("1", value)),))
    literal = "null" if value is None else quote_literal(value)
    *_, preparing, block = composer(COORDINATOR).compose(message)
    assert (preparing.text, preparing.values) == (b"select $1::text, '%'", None)
    assert preparing.prepared is not None
    assert preparing.prepared.name == b"p1f_3"
    assert block == Step(f"do {quote_literal(in_block.block_body(f'execute p1f_3({literal})'))}".encode())
    *_, block = composer(COORDINATOR, prepared=False).compose(message)
    body = in_block.block_body(f"select {literal}::text, '%'")
    assert block == Step(f"do {quote_literal(body)}".encode())


def test_own_sql_takes_values_of_python() -> None:
    """Each statement those that it has slots for, with their types."""
    first, second = steps_of("select $2; select $1, $3", (7, b"\\", None))
    assert (first.text, first.values, first.types) == (b"select $1", [b"\\x5c"], [17])
    assert (second.text, second.values, second.types) == (b"select $1, $2", [b"7", None], [21, 0])
    for wrong, kind in (("a\0", ApiError), ("\ud800", ApiError), (object(), TypeError)):
        with pytest.raises(kind):
            steps_of("select $1", (wrong,))
