"""Rules that are run as one report what they report one by one."""

from __future__ import annotations

from typing import Any

import pytest
from dataapi.graphql.validation import merge_rules
from graphql import GraphQLError, Visitor, build_schema, parse, specified_rules, validate
from graphql.validation import ASTValidationRule
from hypothesis import given
from hypothesis import strategies as st

SCHEMA = build_schema(
    """
    interface Node { id: ID! }
    type Blog implements Node { id: ID! name: String posts(first: Int, filter: Filter): [Post!]! }
    type Post implements Node { id: ID! title: String blog: Blog }
    input Filter { title: String and: [Filter!] kind: Kind }
    enum Kind { DRAFT, PUBLISHED }
    type Query { node(id: ID!): Node blog: Blog posts: [Post!]! }
    type Mutation { delete(id: ID!): Blog }
    """
)
TOGETHER = [merge_rules(specified_rules)]
DOCUMENTS = [
    "{ blog { name posts(first: 3) { title } } }",
    "{ nope blog { nope posts } posts { title { x } } }",
    "query ($a: Int, $a: Nope, $unused: Int) { blog { posts(first: $b, last: 3) { title } } }",
    "query A { blog { name } } query A { posts { id } } { blog { id } }",
    "{ ...F ...G } fragment F on Blog { ...F } fragment H on Nope { x } fragment I on Query { blog { id } }",
    "{ node { ... on Post { title } ... on Kind { x } ... on Query { blog { id } } } }",
    "{ a: blog { name } a: posts { title } blog { posts(first: 1) { id } posts(first: 2) { id } } }",
    '{ blog @skip @include(if: 1) @nope { posts(filter: {title: 3, kind: NO, no: 1, title: "x"}) { id } } }',
    "mutation { delete } subscription { x } type Extra { x: Int }",
    "query ($f: Filter = {kind: DRAFT, and: {title: 1}}) { blog { posts(filter: $f, filter: $f) { id } } }",
    "{ __schema { types { name } } __typename node(id: null) { id @skip(if: true) @skip(if: false) } }",
]
WORDS = st.sampled_from(
    ["{", "}", "(", ")", ":", "$", "@", "...", "on", "blog", "posts", "name", "title", "id", "first",
     "filter", "query", "fragment", "F", "Blog", "Post", "Query", "Int", "1", "$v"]
)  # fmt: skip


def reported(document: str, rules: Any) -> list[Any]:
    """Return the messages and places of a document's errors."""
    errors = validate(SCHEMA, parse(document), rules)
    return [(error.message, error.locations) for error in errors]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_same_errors_in_the_same_order(document: str) -> None:
    """One by one or as one, and again with what was found out before."""
    expected = reported(document, specified_rules)
    assert reported(document, TOGETHER) == expected
    assert reported(document, TOGETHER) == expected


@given(st.lists(WORDS, max_size=25))
def test_the_same_errors_for_any_document_that_parses(words: list[str]) -> None:
    """Whatever is in it."""
    document = "{ blog { " + " ".join(words) + " } }"
    try:
        parse(document)
    except GraphQLError:
        return
    assert reported(document, TOGETHER) == reported(document, specified_rules)


def test_each_rule_skips_and_stops_for_itself() -> None:
    """A rule that skips a field sees what comes behind it; one that stops sees nothing more."""
    seen: dict[str, list[str]] = {"skips": [], "stops": [], "all": [], "any": []}

    class Skips(ASTValidationRule):
        def enter_field(self, node: Any, *_: Any) -> Any:
            seen["skips"].append(node.name.value)
            return self.SKIP if node.name.value == "blog" else None

    class Stops(ASTValidationRule):
        def enter_field(self, node: Any, *_: Any) -> Any:
            seen["stops"].append(node.name.value)

        def leave_field(self, node: Any, *_: Any) -> Any:
            return self.BREAK if node.name.value == "blog" else None

    class All(ASTValidationRule):
        def leave_field(self, node: Any, *_: Any) -> None:
            seen["all"].append(node.name.value)

    class Everything(ASTValidationRule):
        def enter(self, node: Any, *_: Any) -> None:
            seen["any"].append(node.kind)

    assert issubclass(merge_rules([]), Visitor)
    assert (
        reported("{ blog { name id } posts { title } }", [merge_rules([Skips, Stops, All, Everything])]) == []
    )
    assert seen["skips"] == ["blog", "posts", "title"]
    assert seen["stops"] == ["blog", "name", "id"]
    assert seen["all"] == ["name", "id", "blog", "title", "posts"]
    assert seen["any"].count("field") == 5
    assert seen["any"].count("name") == 5
