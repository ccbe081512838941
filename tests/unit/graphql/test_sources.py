"""Decoding of node ids and cursors from clients."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.graphql.sources import NodeKey, decode_cursor, decode_node_id
from graphql import GraphQLError
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False, allow_infinity=False)
)


def encoded(value: Any) -> str:
    """Encode a value like the daemon."""
    return base64.b64encode(json.dumps(value).encode()).decode()


def storable(text: str) -> bool:
    """Return whether PostgreSQL's type text can store a string."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.text().filter(storable)), max_size=4))
def test_cursor_is_decoded_to_its_values_as_text(values: list[Any]) -> None:
    expected = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    assert list(decode_cursor(encoded(values))) == expected


def test_numbers_in_cursors_keep_every_digit() -> None:
    text = base64.b64encode(b"[12345678901234567890.12345678901234567890, 1e400, 0.10]").decode()
    assert decode_cursor(text) == ("12345678901234567890.12345678901234567890", "1e400", "0.10")


def test_node_id_of_pg_graphql_is_decoded() -> None:
    assert decode_node_id("WyJwdWJsaWMiLCAiYWNjb3VudCIsIDFd") == NodeKey("public", "account", ("1",))


texts = st.text().filter(storable)


@given(texts, texts, st.lists(st.one_of(st.integers(), texts), min_size=1, max_size=3))
def test_node_id_is_decoded_to_its_parts(schema: str, table: str, key: list[Any]) -> None:
    assert decode_node_id(encoded([schema, table, *key])) == NodeKey(schema, table, tuple(map(str, key)))


nested = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.one_of(st.text(), nested.map(encoded)))
def test_any_other_text_is_decoded_or_rejected(text: str) -> None:
    assert _outcome(decode_cursor, text, tuple)
    assert _outcome(decode_node_id, text, NodeKey)


def _outcome(decode: Callable[[str], object], text: str, kind: type) -> bool:
    """Return whether a text is decoded to a value of this class, or rejected with an error number."""
    try:
        return isinstance(decode(text), kind)
    except GraphQLError as error:
        return error.message[-1] in "12345"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("?", 1),
        ("WzFd\n", 1),
        (base64.b64encode(b"[1").decode(), 2),
        (base64.b64encode(b'["\xff"]').decode(), 2),
        (base64.b64encode(b"[" * 100_000).decode(), 2),
        (encoded({"a": 1}), 3),
        (encoded("text"), 3),
        (encoded(None), 3),
    ],
)
def test_error_number_identifies_the_failed_step(text: str, number: int) -> None:
    """Error 1 means invalid base64, 2 means invalid JSON, and 3 means that the JSON value is not an array."""
    with pytest.raises(GraphQLError, match=f"Failed to decode cursor, error {number}"):
        decode_cursor(text)
    with pytest.raises(GraphQLError, match=f"Invalid value passed to nodeId argument. Error {number}"):
        decode_node_id(text)
