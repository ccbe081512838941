"""Literals extracted from documents, and the cache keys of documents."""

from __future__ import annotations

from typing import Any

import pytest
from dataapi.graphql.literal_parameters import extract_parameters
from dataapi.graphql.sources import parameter_name
from graphql import (
    FloatValueNode,
    GraphQLError,
    IntValueNode,
    StringValueNode,
    Visitor,
    parse,
    print_ast,
    visit,
)
from hypothesis import example, given
from hypothesis import strategies as st


def key(text: str) -> object:
    """Return the cache key of a document that contains literals."""
    extracted = extract_parameters(text)
    assert extracted is not None
    return extracted.shape


@pytest.mark.parametrize(
    "text",
    [
        "{ a }",
        "query Q1 { t_1 a0 }",
        "{ a0: b a0 }",
        "{ a(b: {c: $d}) }",
        "{ \0: b c: d }",
        "{ a(b: TRUE, c: null, d: $e, f: [x]) }",
        "query ($n: Int = 5) { a(n: $n) }",
        '{ __type(name: "A") { name } }',
        '{ __schema { types { name } } a(b: "x") }',
        '{ a # 5 and "x"\n}',
        '{ a(b: "\\x") }',
    ],
)
def test_documents_without_plain_literals_are_not_changed(text: str) -> None:
    assert extract_parameters(text) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{ a(b: 1) }", "{ a(b: -20) }"),
        ("{ a(b: 1.5) }", "{ a(b: 2e-9) }"),
        ('{ a(b: "x") }', '{ a(b: "a \\"quoted\\" } {") }'),
        ('{ a(b: "x") }', '{ a(b: """block "with" quotes""") }'),
        ('{ a(b: ["x", 1]) }', '{ a(b: ["y", 2]) }'),
        ("{ x: a(b: 1) { y: c } }", "{ longer: a(b: 20) { other: c } }"),
        ("{ x: a x: a z: b }", "{ y: a y: a x: b }"),
        ("{ a(x: $v) @skip(if: $w) { x: b } }", "{ a(x: $v) @skip(if: $w) { y: b } }"),
    ],
)
def test_texts_that_differ_only_in_values_share_a_key(first: str, second: str) -> None:
    assert key(first) == key(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{ a(b: 1) }", '{ a(b: "1") }'),
        ("{ a(b: 1) }", "{ a(b: 1.0) }"),
        ("{ a(b: [1]) }", "{ a(b: [1, 2]) }"),
        ("{ x: a y: a }", "{ x: a x: a }"),
        ("{ x: a y: b }", "{ x: a b }"),
        ("{ a(b: 1) }", "{ a(c: 1) }"),
    ],
)
def test_texts_that_differ_otherwise_have_different_keys(first: str, second: str) -> None:
    assert key(first) != key(second)


@pytest.mark.parametrize(
    "text", ["{ a(b: 007) }", "{ a(b: 1.) }", "{ a(b: 1x) }", "{ a(b: -) }", "{ a(b: 1.2.3) }"]
)
def test_malformed_number_never_shares_a_key_with_a_valid_one(text: str) -> None:
    with pytest.raises(GraphQLError):
        parse(text)
    extracted = extract_parameters(text)
    assert extracted is None or extracted.shape not in {"{ a(b: 0) }", "{ a(b: 0.0) }"}


VALUES = st.recursive(
    st.integers().map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda value: repr(float(value)))
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])).map(
        lambda text: print_ast(StringValueNode(value=text))
    )
    | st.text('ab\\ \n\t"#=', max_size=9).map(lambda text: print_ast(StringValueNode(value=text)))
    | st.sampled_from(["TRUE", "null", "true", "$v", '"""a\n  "b" \\""" c"""']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"f{n}: {i}" for n, i in enumerate(items)) + "}"
        )
    ),
    max_leaves=8,
)


class _Literals(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str, str]] = []

    def _enter(self, node: IntValueNode | FloatValueNode | StringValueNode, *_args: object) -> None:
        assert node.loc is not None
        self.found.append((node.loc.start, node.kind, node.value))

    enter_int_value = enter_float_value = enter_string_value = _enter


@given(st.lists(VALUES, min_size=1, max_size=4))
@example(['"\\u00e9\\n"', "1e5", "-0"])
def test_extracted_literals_are_those_of_the_parser(values: list[str]) -> None:
    text = "{ a(" + " ".join(f"b{number}: {value}" for number, value in enumerate(values)) + ") }"
    visitor = _Literals()
    visit(parse(text), visitor)
    extracted = extract_parameters(text)
    if extracted is None:
        assert not visitor.found or "=" in text
        return
    names = sorted(extracted.names_by_offset.items())
    literals: list[tuple[int, Any]] = [(start, extracted.literals[name]) for start, name in names]
    assert [(start, node.kind, node.value) for start, node in literals] == visitor.found


def test_names_of_extracted_literals_are_invalid_in_documents() -> None:
    with pytest.raises(GraphQLError):
        parse(f"query (${parameter_name(0)}: Int) {{ a }}")
