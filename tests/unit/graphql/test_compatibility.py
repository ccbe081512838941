"""Documents are adapted before validation: variable declarations, renamed variables and enum strings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from dataapi.graphql.compatibility import AdaptedDocument, adapt, client_name
from dataapi.graphql.graphql_core import offset
from dataapi.graphql.input_values import LeafList, LiteralReading, VariableUse, with_enum_values
from graphql import (
    ConstValueNode,
    DocumentNode,
    GraphQLError,
    NameNode,
    OperationDefinitionNode,
    VariableDefinitionNode,
    VariableNode,
    Visitor,
    build_schema,
    parse,
    parse_type,
    print_ast,
    specified_rules,
    validate,
    visit,
)
from graphql.validation import VariablesInAllowedPositionRule
from hypothesis import given
from hypothesis import strategies as st

SCHEMA = build_schema("""
    scalar BigInt
    enum Mood { sad ok }
    input Filter { id: Numbers mood: Moods or: [Filter!] not: Filter }
    input Numbers { eq: BigInt in: [BigInt!] }
    input Moods { eq: Mood in: [Mood!] }
    interface Node { nodeId: ID! }
    type Row implements Node { nodeId: ID! name: String rows(filter: Filter, first: Int): [Row] }
    type Query {
        rows(filter: Filter, first: Int, moods: [Mood!]): [Row]
        row(id: BigInt!): Row
        node(nodeId: ID!): Node
    }
    type Mutation { add(rows: [Filter!]!, mood: Mood = ok): Int }
""")


def _with_declarations(
    node: OperationDefinitionNode, adapted: AdaptedDocument, written: dict[str | None, Any]
) -> OperationDefinitionNode:
    name = node.name.value if node.name else None
    definitions = tuple(
        VariableDefinitionNode(
            variable=VariableNode(name=NameNode(value=each.name)),
            type=parse_type(str(each.type)),
            default_value=_default(each, written[name]),
        )
        for each in adapted.variables(name)
    )
    return replace(node, variable_definitions=definitions)


def _default(use: VariableUse, written: Any) -> ConstValueNode | None:
    reading = LiteralReading()
    for node in written:
        default: ConstValueNode | None = node.default_value
        if node.variable.name.value == client_name(use.name) and default:
            reading.constant(default, use.type)
            return with_enum_values(default, reading.enum_strings)
    return None


def _uses(literal: Any) -> Iterator[VariableUse]:
    match literal:
        case VariableUse():
            yield literal
        case LeafList(items):
            for item in items:
                yield from _uses(item)
        case list() | dict():
            for item in literal.values() if isinstance(literal, dict) else literal:
                yield from _uses(item)


class _Renaming(Visitor):
    """Gives variables the names that they have in an adapted document's literals."""

    def __init__(self, adapted: AdaptedDocument) -> None:
        super().__init__()
        self._names = {offset(use.node): use.name for use in _uses(adapted.literals)}

    def enter_variable(self, node: VariableNode, *_: Any) -> VariableNode | None:
        name = self._names.get(offset(node))
        return None if name is None else VariableNode(name=NameNode(value=name))


def with_declarations(document: DocumentNode) -> DocumentNode:
    """Adapt a document and return it with the variable declarations that the validation rules check."""
    written = {
        node.name.value if node.name else None: node.variable_definitions or ()
        for node in document.definitions
        if isinstance(node, OperationDefinitionNode)
    }
    result = adapt(document, SCHEMA)
    renamed: DocumentNode = visit(result.for_rules(), _Renaming(result))
    return DocumentNode(
        definitions=tuple(
            _with_declarations(node, result, written) if isinstance(node, OperationDefinitionNode) else node
            for node in renamed.definitions
        )
    )


def adapted(text: str) -> str:
    """Adapt a document and return its text on one line."""
    return " ".join(print_ast(with_declarations(parse(text))).split())


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("query ($a: Int!) { row(id: $a) { name } }", "query ($a: BigInt) { row(id: $a) { name } }"),
        ("{ row(id: $a) { name } }", "query ($a: BigInt) { row(id: $a) { name } }"),
        (
            "query ($a: x, $b: [y!]!) { rows(first: $a) { name } }",
            "query ($a: Int) { rows(first: $a) { name } }",
        ),
        (
            'query ($a: String = "sad") { rows(moods: $a, filter: {mood: {eq: $a}}) { name } }',
            "query ($a: [Mood!] = sad, $a:1: Mood = sad) { "
            "rows(moods: $a, filter: { mood: { eq: $a:1 } }) { name } }",
        ),
        (
            "query ($a: Int) { rows(first: $a) { rows(filter: {id: {in: [$a]}}) { name } } "
            "row(id: $a) { name } }",
            "query ($a: Int, $a:1: BigInt) { "
            "rows(first: $a) { rows(filter: { id: { in: [$a:1] } }) { name } } row(id: $a:1) { name } }",
        ),
        (
            "query ($a: Int) { rows @skip(if: $a) { ... @include(if: $b) { rows(first: $a) { name } } } }",
            "query ($a: Boolean, $b: Boolean, $a:1: Int) { rows @skip(if: $a) { ... @include(if: $b) { "
            "rows(first: $a:1) { name } } } }",
        ),
        (
            'mutation { add(rows: {mood: {in: "sad", eq: "ok"}}, mood: "no") }',
            "mutation { add(rows: { mood: { in: sad, eq: ok } }, mood: no) }",
        ),
        (
            'query { node(nodeId: "x") { ... on Row { rows(filter: {or: {mood: {in: "sad"}}}) { name } } } }',
            '{ node(nodeId: "x") { ... on Row { rows(filter: { or: { mood: { in: sad } } }) { name } } } }',
        ),
        (
            "query a($v: x) { row(id: 1) { ...f } } query b { row(id: 2) { ...g } } "
            "fragment f on Row { ...g } fragment g on Row { rows(first: $v) { name } } "
            "fragment h on Row { name }",
            "query a($v: Int) { row(id: 1) { ...f } } query b($v: Int) { row(id: 2) { ...g } } "
            "fragment f on Row { ...g } fragment g on Row { rows(first: $v) { name } }",
        ),
        (
            "{ ...f } fragment f on Query { __typename } fragment f on Query { row(id: 1) { name } }",
            "{ ...f } fragment f on Query { __typename }",
        ),
    ],
)  # fmt: skip
def test_variables_are_declared_with_the_types_of_their_uses(written: str, expected: str) -> None:
    assert adapted(written) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{ rows { name } }",
        "query ($a: Int) { rows(first: $a) { name } }",
        "query ($a: Int = 1, $f: Filter) { rows(first: $a, filter: $f) { ...f } } fragment f on Row { name }",
    ],
)
def test_document_with_correct_declarations_is_unchanged(text: str) -> None:
    document = parse(text)
    result = adapt(document, SCHEMA).for_rules()
    assert adapted(text) == " ".join(print_ast(document).split())
    assert result.definitions[0].selection_set is document.definitions[0].selection_set  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "{ unknown(a: $v) { b(c: $v) } }",
        "{ rows(unknown: $v, filter: {unknown: $v, id: {eq: {a: $v}}}) { name } }",
        "{ rows @unknown(a: $v) { name { a } } }",
        "{ ...f ... on Unknown { a(b: $v) } } fragment f on Unknown { a(b: $v) ...f }",
        "subscription { rows(first: $v) }",
        "type A { a: Int }",
        "fragment f on Row { name }",
    ],
)
def test_unknown_names_are_left_for_validation(text: str) -> None:
    result = adapt(parse(text), SCHEMA).for_rules()
    assert text.startswith("fragment") or validate(SCHEMA, result)


def test_renamed_variables_cannot_clash_with_names_of_clients() -> None:
    name = "v:1"
    assert client_name(name) == "v"
    with pytest.raises(GraphQLError):
        parse(f"query (${name}: Int) {{ rows(first: ${name}) {{ name }} }}")


NAMES = st.sampled_from(["$a", "$b", "$c"])
TYPES = st.sampled_from(["Int", "[Int!]!", "ID!", "String", "nothing", "Row", "Filter", "[Mood]"])
NUMBERS = st.fixed_dictionaries({}, optional={"eq": NAMES, "in": NAMES | st.lists(NAMES)})
FILTERS = st.recursive(
    st.fixed_dictionaries({}, optional={"id": NUMBERS | NAMES, "mood": NAMES}),
    lambda inner: st.fixed_dictionaries({}, optional={"or": NAMES | st.lists(inner | NAMES), "not": inner}),
    max_leaves=5,
)


def literal(value: object) -> str:
    """Return a filter as a GraphQL literal."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {literal(inner)}" for name, inner in value.items()) + "}"
    return f"[{', '.join(map(literal, value))}]" if isinstance(value, list) else str(value)


@given(
    types=st.dictionaries(NAMES, TYPES),
    filters=st.lists(FILTERS | NAMES, min_size=1, max_size=3),
    fragment=FILTERS,
    spread=st.booleans(),
)  # fmt: skip
def test_adapted_documents_are_valid_with_any_declarations(
    types: dict[str, str], filters: list[object], fragment: object, spread: bool
) -> None:
    variables = ", ".join(f"{name}: {type_}" for name, type_ in types.items())
    rows = " ".join(
        f"r{number}: rows(filter: {literal(value)}, first: $a) {{ name {'...f' if spread else ''} }}"
        for number, value in enumerate(filters)
    )
    text = f"query {f'({variables})' if variables else ''} {{ {rows} }} "
    text += f"fragment f on Row {{ rows(filter: {literal(fragment)}) {{ nodeId }} }}"
    rules = [rule for rule in specified_rules if rule is not VariablesInAllowedPositionRule]
    assert validate(SCHEMA, with_declarations(parse(text)), rules) == []


def test_many_operations_with_shared_variables_are_adapted_quickly() -> None:
    number = 400
    operations = " ".join(f"query q{n} {{ ...f0 }}" for n in range(number))
    fragments = " ".join(
        f"fragment f{n} on Query {{ ...f{n + 1} rows(first: $v{n}) {{ name }} }}" for n in range(number)
    )
    text = f"{operations} {fragments} fragment f{number} on Query {{ __typename }}"
    result = adapt(parse(text), SCHEMA)
    assert not any(getattr(node, "variable_definitions", ()) for node in result.document.definitions)
    assert len(list(result.variables("q7"))) == number


def test_variable_declared_twice_is_rejected() -> None:
    with pytest.raises(GraphQLError, match=r"only one variable named '\$a'"):
        adapt(parse("query ($a: Int, $a: x) { rows(first: $a) { name } }"), SCHEMA)
