"""Documents are read as graphql-core reads them, only that long tokens take no longer than short ones."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from dataapi.graphql.parsing import LONGEST_BLOCK_STRING, parse_document
from dataapi.pauses import pausing
from graphql import DocumentNode, GraphQLError, Token, parse
from hypothesis import example, given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

ANY = 10**9
PIECES = st.sampled_from(
    [
        *"{}()[]:=!|&@$.,#\"\\ \t\n\r\ufeff'?\x00\x7f\ud83dé😀0-1",
        *("..", "...", '""', '"""', '\\"""', "\\n", "\\u0041", "\\u{41}", "\\x", "\r\n", "# note\n"),
        *("\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\u{110000}", "01", "1.5", "-0.1e+9", "1.", "1e", ".5"),
        *("1a", "name", "query", "on", "fragment f on T"),
    ]
)


def outcome(text: str, read: Callable[[str], DocumentNode]) -> object:
    """Return the tree with its places, or the error with its place."""
    try:
        tree = read(text)
    except GraphQLError as error:
        return error.message, error.locations, error.positions
    places = [(token.kind, token.start, token.end, token.line, token.column) for token in tokens(tree)]
    return tree, places


def tokens(tree: DocumentNode) -> list[Token]:
    """Return the tokens of a tree but comments."""
    found: list[Token] = []
    assert tree.loc is not None
    token: Token | None = tree.loc.start_token
    while token is not None:
        if token.kind.value != "Comment":
            found.append(token)
        token = token.next
    return found


@given(st.lists(PIECES, max_size=30).map("".join))
@example('{ a(b: "x\\n\\u0041\\u{1F600}\\ud83d\\ude00") }')
@example('{ a(b: """\n  one\r\n    two \\""" \r three\n""") }')
@example('{ a\r\n\r  b # c\n "" }')
@example("{ a #\ud83d\n }")
def test_texts_are_read_as_graphql_core_reads_them(text: str) -> None:
    """Places and errors are the same ones, too."""
    for whole in (text, f"{{ a{text} }}", f'{{ a(b: "{text}") }}', f'{{ a(b: """{text}""") }}'):
        assert outcome(whole, lambda given: parse_document(given, ANY)) == outcome(whole, parse)


def test_tokens_are_limited() -> None:
    assert parse_document("{ a b }", 4)
    with pytest.raises(GraphQLError, match="more than 3 tokens"):
        parse_document("{ a b }", 3)


def test_block_strings_are_limited() -> None:
    text = '{{ a(b: """{}""") }}'
    assert parse_document(text.format("x" * (LONGEST_BLOCK_STRING - 3)), ANY)
    with pytest.raises(GraphQLError, match="block string has more than the 100000 characters"):
        parse_document(text.format("x" * (LONGEST_BLOCK_STRING - 2)), ANY)


def test_a_tree_that_is_dropped_is_free_at_once() -> None:
    """No token leads back to one before it, so that nothing is left for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        parse_document("{ a(b: [1, 2]) { c ... on T { d } } } fragment f on T { e }", ANY)
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("text", ['{ a(b: "' + "\\n" * 999 + '") }', "{" + "a " * 999 + "}"])
def test_parsing_pauses_between_tokens_and_escapes(text: str) -> None:
    steps: list[None] = []
    with pausing(lambda: steps.append(None)):
        parse_document(text, ANY)
    assert len(steps) > 999
