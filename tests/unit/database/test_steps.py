"""Steps that a connection executes for a message. Their texts contain no request values."""

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
    statements = PreparedStatements("p1f_", shared=shared) if prepared else None
    if defaults.distributed:
        return CoordinatorComposer(defaults, statements, quote_literal)
    return Composer(defaults, statements)


def lookup(role: str = "anon", claims: str = "{}", one: str | None = "1", two: str | None = "x") -> Message:
    """Return a message with the statement LOOKUP and one setting."""
    return Message(role, (("request.jwt.claims", claims),), (Bound(LOOKUP, (one, two)),))


def mark_sent(result: list[Step]) -> list[Step]:
    """Mark the steps' statements as prepared and return the steps."""
    for step in result:
        if step.prepared is not None:
            step.prepared.ready = True
    return result


def texts(result: list[Step]) -> list[str]:
    """Return the beginnings of the steps' texts."""
    return [step.text.decode().partition(" where ")[0][:20] for step in result]


def names(result: list[Step]) -> list[bytes | None]:
    """Return the steps' prepared statement names."""
    return [None if step.prepared is None else step.prepared.name for step in result]


def test_prepared_statements_are_reused() -> None:
    subject = composer()
    first, second = mark_sent(subject.compose(lookup())), subject.compose(lookup(claims="other", one="2"))
    assert names(first) == names(second) == [b"p1f_1", b"p1f_2", b"p1f_3"]
    reset, opening, statement = second
    assert (reset.text, reset.values) == (b"reset all", [])
    assert opening.text.startswith(b"select where case when ")
    assert opening.values == [b"anon", b"other"]
    assert (statement.text, statement.values) == (LOOKUP_TEXT, [b"2", b"x"])


def test_each_role_has_its_own_prepared_statement() -> None:
    subject = composer()
    result = [names(mark_sent(subject.compose(lookup(role)))) for role in ("anon", "authenticated", "anon")]
    assert [each[1:] for each in result] == [
        [b"p1f_2", b"p1f_3"], [b"p1f_2", b"p1f_4"], [b"p1f_2", b"p1f_3"],
    ]  # fmt: skip


@given(STORABLE.filter(lambda role: role not in ("", "none")), STORABLE, VALUE, VALUE)
def test_values_of_a_request_never_change_the_text(
    role: str, claims: str, one: str | None, two: str | None
) -> None:
    for prepared in (True, False):
        result = composer(prepared=prepared).compose(lookup(role, claims, one, two))
        assert [step.text for step in result] == [
            step.text for step in composer(prepared=prepared).compose(lookup())
        ]
        bound = [value if value is None else value.encode() for value in (one, two)]
        assert [step.values for step in result[1:]] == [[role.encode(), claims.encode()], bound]


@pytest.mark.parametrize("value", ["a\0b", "a\ud800b"])
def test_text_that_postgresql_cannot_store_is_rejected(value: str) -> None:
    for wrong in (lookup(one=value), lookup(claims=value)):
        with pytest.raises(ApiError) as caught:
            composer().compose(wrong)
        assert caught.value.code == "22021"


@pytest.mark.parametrize("role", ["", "none"])
def test_message_without_a_role_is_rejected(role: str) -> None:
    subject = composer()
    for compose in (subject.compose, lambda message: subject.compose_begin(message, "")):
        with pytest.raises(DatabaseError) as caught:
            compose(lookup(role=role))
        assert caught.value.status == 401


def test_wrong_number_of_values_is_rejected() -> None:
    for prepared in (True, False):
        with pytest.raises(ValueError, match="1 values for 2 parameters"):
            composer(prepared=prepared).compose(Message("anon", (), (Bound(LOOKUP, ("1",)),)))


def test_repeated_message_resets_settings_first() -> None:
    subject, undo = composer(), ["begin", "reset all", "commit"]
    assert texts(subject.compose(lookup(), repeated=True)) == [*undo, "select", "select $1::int % 2, "]
    strict = lookup()._replace(isolation="SERIALIZABLE")
    assert texts(subject.compose(strict))[:4] == [*undo, "begin isolation leve"]
    assert texts(subject.compose(lookup()._replace(rollback=True)))[:4] == [*undo, "begin"]
    assert texts(composer(Defaults()).compose(lookup())) == ["select", "select $1::int % 2, "]


def test_failed_preparation_is_repeated_under_another_name() -> None:
    subject = composer()
    failed = subject.compose(lookup())
    for step in failed[1:]:
        assert step.prepared is not None
        step.prepared.ready = False
    assert names(subject.compose(lookup())) == [b"p1f_1", b"p1f_4", b"p1f_5"]


def test_surplus_prepared_statements_are_deallocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_PREPARED", 3)
    subject = composer()
    mark_sent(subject.compose(lookup()))
    assert "deallocate" not in str(texts(mark_sent(subject.compose(lookup("authenticated")))))
    assert subject.compose(lookup("authenticated"))[0] == Step(b"deallocate p1f_3")
    assert "deallocate" not in str(texts(subject.compose(lookup("authenticated"))))


def test_everything_is_prepared_again_after_a_stale_plan() -> None:
    subject, shared = composer(), composer(Defaults(), shared=True)
    for each in (subject, shared):
        mark_sent(each.compose(lookup()))
        assert each.prepared is not None
        each.prepared.renew()
    again = subject.compose(lookup(), repeated=True)
    assert again[0] == Step(b"deallocate all")
    assert names(again)[-2:] == [b"p1f_4", b"p1f_5"]
    assert [step.text.partition(b"select")[0] for step in shared.compose(lookup())] == [
        b"/*p1f_2 */", b"/*p1f_2 anon*/",
    ]  # fmt: skip


def test_comment_disables_preparation() -> None:
    """Every comment would create another prepared statement."""
    *_, statement = composer().compose(lookup(), "/*a*/")
    assert statement == Step(b"/*a*/" + LOOKUP_TEXT, [b"1", b"x"])


def test_request_settings_reach_the_workers_of_a_citus_cluster() -> None:
    subject = composer(COORDINATOR)
    message = lookup(claims="it's \\ $dataapi$;")._replace(
        settings=(("request.headers", "it's \\ $dataapi$;"), ("statement_timeout", "5"))
    )
    for result in (subject.compose(message)[1:], subject.compose_begin(message, "")[-4:]):
        begin, opening, block, statement = result
        assert begin.text == b"begin"
        assert b"set_config('citus.propagate_set_commands',$2,true)" in opening.text
        assert b"request.headers" not in opening.text
        assert opening.values == [b"anon", b"local", b"5"]
        body = quote_literal("begin set local request.headers =  E'it''s \\\\ $dataapi$;';end")
        assert block == Step(f"do {body}".encode())
        assert statement.text == LOOKUP_TEXT
    assert not any(step.text.startswith(b"do ") for step in subject.compose(message._replace(settings=())))


@given(VALUE)
def test_block_executes_its_statement_with_a_literal(value: str | None) -> None:
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


def test_internal_statements_accept_python_values() -> None:
    first, second = steps_of("select $2; select $1, $3", (7, b"\\", None))
    assert (first.text, first.values, first.types) == (b"select $1", [b"\\x5c"], [17])
    assert (second.text, second.values, second.types) == (b"select $1, $2", [b"7", None], [21, 0])
    for wrong, kind in (("a\0", ApiError), ("\ud800", ApiError), (object(), TypeError)):
        with pytest.raises(kind):
            steps_of("select $1", (wrong,))
