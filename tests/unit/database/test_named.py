"""The steps of a message whose statements a pooler keeps prepared."""

from __future__ import annotations

import pytest
from dataapi.database.message import NO_DEFAULTS, Bound, Message, Statement
from dataapi.database.named import NamedStatements

LOOKUP = Statement("select $3, '$1', $2 || $3 from note", ("int", "text", "bigint"))


def asking(*values: str, role: str = "anon", statement: Statement = LOOKUP) -> Message:
    """Return a message with a value for each slot."""
    return Message(role, (), (Bound(statement, values),))


def test_slots_that_a_statement_does_not_have_are_left_out() -> None:
    """PostgreSQL cannot tell their type, and a pooler takes no names of types."""
    steps = NamedStatements("p").steps(asking("1", "b", "3"), NO_DEFAULTS)
    assert steps is not None
    _, step = steps.steps
    assert step == ("p2", "/*anon*/select $1::bigint, '$1', $2::text || $1::bigint from note", ["3", "b"])


def test_a_statement_is_prepared_once_for_each_role() -> None:
    """A plan for one is made again for another."""
    named = NamedStatements("p")
    seen = [named.steps(asking("1", "b", "3", role=role), NO_DEFAULTS) for role in ("a", "b", "a")]
    assert [[(step.name, step.text is None) for step in one.steps] for one in seen if one] == [
        [("p1", False), ("p2", False)],
        [("p1", True), ("p3", False)],
        [("p1", True), ("p2", True)],
    ]


@pytest.mark.parametrize("role", ["*/drop table note;/*", "Ünder dem Strich"])
def test_a_role_does_not_end_the_comment_that_it_is_in(role: str) -> None:
    """Whatever its name is."""
    steps = NamedStatements("p").steps(asking("1", "b", "3", role=role), NO_DEFAULTS)
    assert steps is not None
    text = steps.steps[1].text
    assert text is not None
    comment, _, rest = text.partition("*/")
    assert rest.startswith("select")
    assert comment.isascii()


def test_names_that_failed_and_texts_that_are_outdated_are_not_used_again() -> None:
    """A pooler may remember a name, and takes statements of one text for the same."""
    named = NamedStatements("p")
    first = named.steps(asking("1", "b", "3"), NO_DEFAULTS)
    assert first is not None
    named.failed(first)
    again = named.steps(asking("1", "b", "3"), NO_DEFAULTS)
    assert again is not None
    assert [step.name for step in again.steps] == ["p3", "p4"]
    named.renew()
    anew = named.steps(asking("1", "b", "3"), NO_DEFAULTS)
    assert anew is not None
    assert {step.text for step in anew.steps}.isdisjoint({step.text for step in again.steps})


@pytest.mark.parametrize(
    "message",
    [
        Message("anon", (), (), isolation="SERIALIZABLE"),
        Message("anon", (), (), rollback=True),
        asking(statement=Statement("explain select 1", (), prepared=False)),
    ],
)
def test_what_cannot_be_prepared_has_no_steps(message: Message) -> None:
    """It is sent as text."""
    assert NamedStatements("p").steps(message, NO_DEFAULTS) is None


def test_a_statement_without_a_value_for_a_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="2 values for 3 slots"):
        NamedStatements("p").steps(asking("1", "b"), NO_DEFAULTS)
