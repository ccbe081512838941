"""Conditions of requests (RFC 9110 section 13): parsing and evaluation."""

from __future__ import annotations

import re

import pytest
from dataapi.http.errors import ApiError
from dataapi.rest.parse.preconditions import MATCH, NONE_MATCH, Compared, Preconditions, read_preconditions
from hypothesis import given
from hypothesis import strategies as st

OPAQUE = st.text(st.characters(exclude_characters='"', min_codepoint=0x21, max_codepoint=0x7E), max_size=5)
TAGS = st.lists(st.builds('{}"{}"'.format, st.sampled_from(["", "W/"]), OPAQUE), min_size=1, max_size=4)
GAPS = st.sampled_from([",", ", ", " ,", ",,", "\t, \t,"])


def conditions(match: str | None = None, none_match: str | None = None) -> Preconditions:
    given = {MATCH: match, NONE_MATCH: none_match}
    read = read_preconditions({name: value for name, value in given.items() if value is not None})
    assert read is not None
    return read


@given(TAGS, st.data())
def test_all_entity_tags_of_a_list_are_read(tags: list[str], data: st.DataObject) -> None:
    text = tags[0] + "".join(data.draw(GAPS) + tag for tag in tags[1:])
    read = conditions(text, f" ,{text}, ")
    assert read == Preconditions(frozenset(tags), frozenset(tags))
    assert read.compared is Compared.CONTENT


@given(st.text(st.sampled_from('*"W/a, \t\x7f'), max_size=8))
def test_only_lists_of_entity_tags_are_accepted(text: str) -> None:
    """Compares the result with a separate check of each list element."""
    elements = re.findall(r'(?:[^,"]|"[^"]*"?)+', text)
    tags = [each.strip(" \t") for each in elements if each.strip(" \t")]
    valid = all(re.fullmatch(r'(W/)?"[^" \t\x7f]*"', each) for each in tags) and bool(tags)
    if valid:
        assert conditions(text).match == frozenset(tags)
    elif text.strip(" \t") == "*":
        assert conditions(text).match == frozenset()
    else:
        with pytest.raises(ApiError) as raised:
            conditions(text)
        assert (raised.value.status, raised.value.code) == (400, "PGRST100")


def test_invalid_header_is_named_and_shortened() -> None:
    with pytest.raises(ApiError, match=re.escape('invalid value for "If-None-Match": "abc"')):
        conditions(none_match="abc")
    with pytest.raises(ApiError) as raised:
        conditions("x" * 1000)
    assert len(raised.value.message) < 100


def test_hostile_header_is_rejected_in_linear_time() -> None:
    for text in ('"a"' + ", \t" * 20_000 + "x", " ,\t" * 20_000 + "x", '"a",' * 20_000 + "x"):
        with pytest.raises(ApiError):
            conditions(text)


@pytest.mark.parametrize(
    ("match", "none_match", "tag", "exists", "failed"),
    [
        ('"a"', None, '"a"', True, None),
        ('"b", "a"', None, '"a"', True, None),
        ('"b"', None, '"a"', True, MATCH),
        ('W/"a"', None, '"a"', True, MATCH),  # strong comparison
        ('"a"', None, None, True, MATCH),
        ("*", None, None, True, None),
        ("*", None, '"a"', False, MATCH),
        (None, '"a"', '"a"', True, NONE_MATCH),
        (None, 'W/"a"', '"a"', True, NONE_MATCH),  # weak comparison
        (None, '"b"', '"a"', True, None),
        (None, '"b"', None, True, None),
        (None, "*", '"a"', True, NONE_MATCH),
        (None, "*", '"a"', False, None),
        ('"a"', '"a"', '"a"', True, NONE_MATCH),
        ('"b"', '"a"', '"a"', True, MATCH),  # If-Match is evaluated first
    ],
)
def test_conditions_are_evaluated(
    match: str | None, none_match: str | None, tag: str | None, exists: bool, failed: str | None
) -> None:
    assert conditions(match, none_match).failed(tag, exists=exists) == failed


def test_stars_compare_existence_only() -> None:
    assert conditions("*", "*").compared is Compared.EXISTENCE
    assert conditions("*", '"a"').compared is Compared.CONTENT


def test_totals_of_entity_tags_can_be_removed() -> None:
    digest = "0123456789abcdef" * 2
    tags = f'"{digest}-17", "{digest[:-1]}-17", "a-17", W/"{digest}-1"'
    plain = conditions(tags, "*").without_totals()
    tags_without = frozenset([f'"{digest}"', f'"{digest[:-1]}-17"', '"a-17"', f'W/"{digest}"'])
    assert plain == Preconditions(tags_without, frozenset())
    assert read_preconditions({}) is None
