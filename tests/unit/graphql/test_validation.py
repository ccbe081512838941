"""The quick validation accepts most valid documents and no invalid document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dataapi.graphql.compatibility import adapt
from dataapi.graphql.validation import is_certainly_valid
from graphql import (
    GraphQLError,
    NoUndefinedVariablesRule,
    NoUnusedVariablesRule,
    VariablesInAllowedPositionRule,
    build_schema,
    parse,
    specified_rules,
    validate,
)
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = build_schema(
    """
    interface Node { id: ID! }
    type Blog implements Node { id: ID! name: String posts(first: Int, filter: Filter): [Post!]! }
    type Post implements Node { id: ID! title: String blog: Blog }
    input Filter { title: String and: [Filter!] kind: Kind number: Number ids: [ID!] }
    input Number { eq: Int! }
    enum Kind { DRAFT, PUBLISHED }
    type Query { node(id: ID!): Node blog(kinds: [Kind!]): Blog posts: [Post!]! }
    type Mutation { delete(id: ID!): Blog }
    """
)
DECLARATIONS = (NoUndefinedVariablesRule, NoUnusedVariablesRule, VariablesInAllowedPositionRule)
RULES = [rule for rule in specified_rules if rule not in DECLARATIONS]
USUAL = [
    "{ blog { name posts(first: 3) { title } } }",
    "{ ...F } fragment F on Query { blog { ...G name } } fragment G on Blog { name ... on Node { id } }",
    "query A { a: blog { name } b: blog { name name __typename } } query B { __typename }",
    "{ node(id: 5) { ... on Post { title } ... on Blog { name ...G } } } fragment G on Node { __typename }",
    "query ($v: Int) { blog @skip(if: $v) { posts(filter: {title: $v, and: {number: {eq: 1}}}) { id } } }",
    'mutation { delete(id: "x") { name @include(if: true) @skip(if: false) } }',
    "{ blog(kinds: DRAFT) { posts(first: null, filter: {kind: PUBLISHED, ids: [1, $v]}) { id } } }",
]
UNUSUAL = [
    "{ nope blog { nope posts } posts { title { x } } }",
    "query A { blog { name } } query A { posts { id } }",
    "{ blog { id } } query B { blog { id } }",
    "{ ...F ...G } fragment F on Blog { ...F } fragment H on Nope { x } fragment I on Query { blog { id } }",
    "{ ...F } fragment F on Query { blog { ...G } } fragment G on Blog { posts { blog { ...G } } }",
    "{ blog { ...F } } fragment F on Post { title }",
    "{ node { ... on Post { title } ... on Kind { x } ... on Query { blog { id } } } }",
    "{ node(id: 1) { ... on Query { blog { id } } } }",
    "{ a: blog { name } a: posts { title } }",
    "{ blog { posts(first: 1) { id } posts(first: 2) { id } } }",
    "{ blog { x: name x: id } }",
    "{ blog { x: name ... { ... on Blog { x: id } } } }",
    "{ blog { ...F } } fragment F on Blog { name name: id }",
    "{ blog @skip { id } }",
    "{ blog @include(if: 1) { id } }",
    "{ blog @nope { id } }",
    "{ blog @skip(if: true) @skip(if: false) { id } }",
    "query @skip(if: true) { blog { id } }",
    "{ blog { posts(filter: {title: 3}) { id } } }",
    "{ blog { posts(filter: {kind: NO}) { id } } }",
    "{ blog { posts(filter: {no: 1}) { id } } }",
    '{ blog { posts(filter: {title: "x", title: "x"}) { id } } }',
    "{ blog { posts(filter: {number: {}}) { id } } }",
    "{ blog { posts(filter: {number: {eq: null}}) { id } } }",
    "{ blog { posts(filter: [{}]) { id } } }",
    "{ blog { posts(first: [1]) { id } } }",
    "{ blog { posts(first: 1, first: 1) { id } } }",
    "{ blog { posts(last: 1) { id } } }",
    "{ blog(kinds: [DRAFT, null]) { id } }",
    "mutation { delete { id } }",
    "subscription { x }",
    "{ blog { id } } type Extra { x: Int }",
    "{ node(id: null) { id } }",
    "{ blog }",
    "{ blog { name { x } } }",
]
WORDS = st.sampled_from(
    ["{", "}", "(", ")", ":", "$", "@", "...", "on", "blog", "posts", "name", "title", "id", "first",
     "filter", "query", "fragment", "F", "Blog", "Post", "Query", "Int", "1", "$v"]
)  # fmt: skip


@pytest.mark.parametrize("text", USUAL)
def test_usual_document_passes_the_check(text: str) -> None:
    assert is_certainly_valid(adapt(parse(text), SCHEMA), SCHEMA)
    assert validate(SCHEMA, parse(text), RULES) == []


@pytest.mark.parametrize("text", UNUSUAL)
def test_invalid_document_does_not_pass_the_check(text: str) -> None:
    assert not is_certainly_valid(adapt(parse(text), SCHEMA), SCHEMA)
    assert validate(SCHEMA, parse(text), RULES)


def pieces(depth: int) -> st.SearchStrategy[str]:
    """Return a strategy for selections, most of them valid on some type."""
    value = st.sampled_from(["1", '"x"', "$v", "null", "DRAFT", "[1]", "{}", "{title: 1}", "{kind: DRAFT}"])
    leaf = st.sampled_from(["id", "name", "title", "__typename", "x: id", "x: name", "...F", "...G"])
    if depth == 0:
        return leaf
    inner = st.lists(pieces(depth - 1), min_size=1, max_size=3).map(" ".join)
    arguments = st.sampled_from(["first", "filter", "id", "kinds"]).flatmap(
        lambda name: value.map(lambda text: f"({name}: {text})")
    )
    fields = st.tuples(
        st.sampled_from(["", "x: ", "y: "]),
        st.sampled_from(["blog", "posts", "node"]),
        st.one_of(st.just(""), arguments),
        st.sampled_from(["", "", "@skip(if: $v)", "@include(if: true)"]),
        inner,
    ).map(lambda parts: "{}{}{} {} {{ {} }}".format(*parts))
    fragments = st.tuples(st.sampled_from(["on Blog", "on Post", "on Node", ""]), inner).map(
        lambda parts: "... {} {{ {} }}".format(*parts)
    )
    return st.one_of(leaf, fields, fields, fragments)


def joined(selections: Sequence[str]) -> str:
    return " ".join(selections)


@given(*[st.lists(pieces(depth), min_size=1, max_size=3).map(joined) for depth in (3, 1, 1)])
def test_documents_that_pass_the_check_pass_the_rules(operation: str, first: str, second: str) -> None:
    used = {name for name in "FG" if f"...{name}" in operation + first + second}
    text = f"{{ {operation} }}"
    text += f" fragment F on Blog {{ {first} }}" if "F" in used else ""
    text += f" fragment G on Post {{ {second} }}" if "G" in used else ""
    document = adapt(parse(text), SCHEMA)
    assert not is_certainly_valid(document, SCHEMA) or not validate(SCHEMA, document.for_rules(), RULES)


@given(st.lists(WORDS, max_size=25))
def test_any_parsed_document_that_passes_the_check_passes_the_rules(words: list[str]) -> None:
    try:
        document = adapt(parse("{ blog { " + " ".join(words) + " } }"), SCHEMA)
    except GraphQLError:
        return
    assert not is_certainly_valid(document, SCHEMA) or not validate(SCHEMA, document.for_rules(), RULES)
