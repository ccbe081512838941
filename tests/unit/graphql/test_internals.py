"""Internals of graphql-core that we use. ``make test-lowest`` tests its lowest supported version."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from dataapi.graphql import graphql_core, validation
from dataapi.graphql.graphql_core import LazyMap, LazyObjectType, LazySchema
from graphql import (
    GraphQLField,
    GraphQLInt,
    GraphQLObjectType,
    GraphQLSchema,
    Lexer,
    Location,
    OverlappingFieldsCanBeMergedRule,
    Source,
    Token,
    TypeInfo,
    TypeInfoVisitor,
    ValidationContext,
    Visitor,
    build_schema,
    parse,
)
from graphql.language.parser import Parser

# The package exports a function with the same name as this module.
validate_module: Any = import_module("graphql.validation.validate")
validation_context: Any = import_module("graphql.validation.validation_context")
PACKAGE = Path(graphql_core.__file__).parent
ADAPTED = {"graphql_core", "validation"}


def test_other_modules_use_only_public_names() -> None:
    for path in PACKAGE.rglob("*.py"):
        imported = {
            node.module
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module
        }
        inner = {name for name in imported if name.startswith("graphql.")} - {"graphql.pyutils"}
        assert path.stem in ADAPTED or not inner, path


def test_graphql_core_is_not_monkeypatched() -> None:
    assert validate_module.TypeInfo is TypeInfo is validation_context.TypeInfo
    assert validate_module.TypeInfoVisitor is TypeInfoVisitor
    assert import_module(OverlappingFieldsCanBeMergedRule.__module__).MAX_COMPLEXITY_BUDGET == 500_000


SCHEMA = build_schema("type Query { a(b: Int): Int }")


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (Parser, ["loc", "parse_document"]),
        (Lexer, ["lookahead", "read_next_token", "read_string", "read_block_string", "create_token"]),
        (Lexer, ["read_escaped_unicode_variable_width", "read_escaped_unicode_fixed_width"]),
        (Lexer, ["read_escaped_character"]),
        (Source, ["get_location"]),
        (TypeInfo, ["enter", "leave"]),
        (ValidationContext, ["get_variable_usages", "get_recursive_variable_usages"]),
        (validation_context, ["VariableUsageVisitor"]),
        (validate_module, ["FragmentNestingVisitor", "ValidationAbortedError"]),
        (validate_module, ["query_document_keys_to_validate"]),
        (GraphQLSchema, ["get_implementations", "is_sub_type", "get_field"]),
    ],
)
def test_internals_that_we_use_exist(owner: Any, names: list[str]) -> None:
    assert [name for name in names if not hasattr(owner, name)] == []


def test_parser_has_a_lexer_and_tokens_have_positions() -> None:
    parser = Parser(Source("{ a }"))
    token: Token = parser._lexer.last_token
    assert (token.start, token.line, token.column) == (0, 0, 0)
    assert {"start", "end"} <= set(Location.__slots__)


def test_visitor_caches_its_methods_by_node_kind() -> None:
    visitor = Visitor()
    visitor.get_enter_leave_for_kind("field")
    assert list(visitor.enter_leave_map) == ["field"]


def test_rule_of_overlapping_fields_has_a_complexity_budget() -> None:
    context = ValidationContext(SCHEMA, parse("{ a }"), TypeInfo(SCHEMA), lambda _error: None)
    rule = OverlappingFieldsCanBeMergedRule(context)
    assert rule.rule_context.remaining_complexity_budget > validation.COMPARISONS


def test_lazy_schema_has_all_attributes_of_a_schema() -> None:
    query = GraphQLObjectType("Query", {"a": GraphQLField(GraphQLInt)})
    plain = GraphQLSchema(query, assume_valid=True)
    types: LazyMap[Any] = LazyMap({"Query": query}.get, lambda: ["Query"])
    on_demand = {"mutation_type", "subscription_type"}
    lazy = LazySchema(query, types, subscription=None)
    assert vars(lazy).keys() | on_demand == vars(plain).keys() | {"_subscription"}


def test_fields_of_a_lazy_object_type_are_created_on_first_use() -> None:
    lazy = LazyObjectType("A", {"a": GraphQLField(GraphQLInt)}.get, lambda: ["a"], "Described.")
    assert lazy.fields.get("a") is not None
    own, base = (inspect.getattr_static(type_, "fields") for type_ in (LazyObjectType, GraphQLObjectType))
    assert isinstance(base, type(own))
