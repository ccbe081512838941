"""Documents are read as graphql-core reads them, only that long tokens take no longer than short ones."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest
from dataapi.graphql.graphql_core import LONGEST_BLOCK_STRING, LazyMap, location_of, parse_document
from graphql import DocumentNode, GraphQLError, Node, SourceLocation, Visitor, parse, visit
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
    """Return the tree with the places of its nodes, or the error with its place."""
    try:
        tree = read(text)
    except GraphQLError as error:
        return error.message, error.locations, error.positions
    places = []

    class Noting(Visitor):
        def enter(self, node: Node, *_arguments: object) -> None:
            assert node.loc is not None
            place = location_of(node)
            if place is None:
                place = SourceLocation(node.loc.start_token.line, node.loc.start_token.column)
            assert node is tree or place == node.loc.source.get_location(node.loc.start)
            places.append((node.kind, node.loc.start, node.loc.end, place))

    visit(tree, Noting())
    return tree, places


@given(st.lists(PIECES, max_size=30).map("".join))
@example('{ a(b: "x\\n\\u0041\\u{1F600}\\ud83d\\ude00") }')
@example('{ a(b: """\n  one\r\n    two \\""" \r three\n""") }')
@example('{ a\r\n\r  b # c\n "" }')
@example("{ a #\ud83d\n }")
def test_texts_are_read_as_graphql_core_reads_them(text: str) -> None:
    for whole in (text, f"{{ a{text} }}", f'{{ a(b: "{text}") }}', f'{{ a(b: """{text}""") }}'):
        assert outcome(whole, lambda given: parse_document(given, ANY)[0]) == outcome(whole, parse)


def test_tokens_are_limited() -> None:
    assert parse_document("{ a b }", 4)[1] == 5, "with the end of the text"
    with pytest.raises(GraphQLError, match="more than 3 tokens"):
        parse_document("{ a b }", 3)


def test_block_strings_are_limited() -> None:
    text = '{{ a(b: """{}""") }}'
    assert parse_document(text.format("x" * (LONGEST_BLOCK_STRING - 3)), ANY)
    with pytest.raises(GraphQLError, match="block string has more than the 100000 characters"):
        parse_document(text.format("x" * (LONGEST_BLOCK_STRING - 2)), ANY)


def test_a_tree_that_is_dropped_is_free_at_once() -> None:
    gc.disable()
    try:
        tree = parse_document("{ a(b: [1, 2]) { c ... on T { d } } } fragment f on T { e }", ANY)[0]
        nodes = [weakref.ref(node) for node in (tree, *tree.definitions)]
        assert all(node() is not None for node in nodes)
        del tree
        assert [node() for node in nodes] == [None] * 3
    finally:
        gc.enable()


def test_threads_that_make_the_same_value_share_one() -> None:
    """Two types of one name would be different ones to validation."""
    both = threading.Barrier(2, timeout=10)

    def make(_name: str) -> object:
        both.wait()
        return object()

    made: LazyMap[object] = LazyMap(make, lambda: ["a"])
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(made["a"])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] is found[1] is made["a"]
