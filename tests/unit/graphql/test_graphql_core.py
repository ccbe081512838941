"""Our parser returns the same trees as graphql-core's, but is not slowed down by long tokens."""

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
    """Return the tree with the locations of its nodes, or the error with its location."""
    try:
        tree = read(text)
    except GraphQLError as error:
        return error.message, error.locations, error.positions
    locations = []

    class LocationCollector(Visitor):
        def enter(self, node: Node, *_arguments: object) -> None:
            assert node.loc is not None
            location = location_of(node)
            if location is None:
                location = SourceLocation(node.loc.start_token.line, node.loc.start_token.column)
            assert node is tree or location == node.loc.source.get_location(node.loc.start)
            locations.append((node.kind, node.loc.start, node.loc.end, location))

    visit(tree, LocationCollector())
    return tree, locations


@given(st.lists(PIECES, max_size=30).map("".join))
@example('{ a(b: "x\\n\\u0041\\u{1F600}\\ud83d\\ude00") }')
@example('{ a(b: """\n  one\r\n    two \\""" \r three\n""") }')
@example('{ a\r\n\r  b # c\n "" }')
@example("{ a #\ud83d\n }")
def test_parser_returns_the_same_as_graphql_core(text: str) -> None:
    for document in (text, f"{{ a{text} }}", f'{{ a(b: "{text}") }}', f'{{ a(b: """{text}""") }}'):
        assert outcome(document, lambda source: parse_document(source, ANY)[0]) == outcome(document, parse)


def test_tokens_are_limited() -> None:
    assert parse_document("{ a b }", 4)[1] == 5, "the end of the text is a token"
    with pytest.raises(GraphQLError, match="more than 3 tokens"):
        parse_document("{ a b }", 3)


def test_block_strings_are_limited() -> None:
    text = '{{ a(b: """{}""") }}'
    assert parse_document(text.format("x" * (LONGEST_BLOCK_STRING - 3)), ANY)
    with pytest.raises(GraphQLError, match="block string has more than the 100000 characters"):
        parse_document(text.format("x" * (LONGEST_BLOCK_STRING - 2)), ANY)


def test_unused_tree_is_freed_without_garbage_collection() -> None:
    gc.disable()
    try:
        tree = parse_document("{ a(b: [1, 2]) { c ... on T { d } } } fragment f on T { e }", ANY)[0]
        nodes = [weakref.ref(node) for node in (tree, *tree.definitions)]
        assert all(node() is not None for node in nodes)
        del tree
        assert [node() for node in nodes] == [None] * 3
    finally:
        gc.enable()


def test_threads_that_create_the_same_value_share_one() -> None:
    """Validation would treat two type objects with the same name as different types."""
    barrier = threading.Barrier(2, timeout=10)

    def create(_name: str) -> object:
        barrier.wait()
        return object()

    values: LazyMap[object] = LazyMap(create, lambda: ["a"])
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(values["a"])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results[0] is results[1] is values["a"]
