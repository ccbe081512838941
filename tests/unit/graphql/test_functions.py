"""Overloaded functions share a field. A call's arguments select the function."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dataapi.catalog.allocation import allocate_names
from dataapi.catalog.model import (
    Argument,
    Catalog,
    Function,
    Role,
    Schema,
    Type,
    TypeKind,
    Volatility,
)
from dataapi.catalog.names import CatalogNames
from dataapi.graphql.schema.catalog_view import CatalogView
from dataapi.graphql.schema.functions import FunctionField, arguments_error, constant_default, function_fields
from dataapi.graphql.schema.type_mapping import mapping_of

if TYPE_CHECKING:
    from collections.abc import Sequence

INT, TEXT, BOOL, FLOAT, INTS, VOID = 23, 25, 16, 701, 1007, 2278
TYPES = {
    INT: Type(INT, "pg_catalog", "int4", TypeKind.BASE),
    TEXT: Type(TEXT, "pg_catalog", "text", TypeKind.BASE),
    BOOL: Type(BOOL, "pg_catalog", "bool", TypeKind.BASE),
    FLOAT: Type(FLOAT, "pg_catalog", "float8", TypeKind.BASE),
    INTS: Type(INTS, "pg_catalog", "_int4", TypeKind.ARRAY, element=INT),
    VOID: Type(VOID, "pg_catalog", "void", TypeKind.PSEUDO),
}


def function(
    oid: int, name: str, returns: int, *arguments: tuple[str, int] | tuple[str, int, str]
) -> Function:
    """Return a stable function. Each argument is a tuple of a name, a type and optionally a default."""
    parsed = tuple(Argument(item[0], item[1], item[2] if len(item) == 3 else None) for item in arguments)
    return Function(
        oid, "public", name, parsed, returns, returns_set=False, rows=0, columns=(),
        volatility=Volatility.STABLE, settings=(), comment=None, acl=((0, frozenset({"EXECUTE"})),),
    )  # fmt: skip


def catalog_of(functions: Sequence[Function]) -> Catalog:
    usage = ((0, frozenset({"USAGE"})),)
    catalog = Catalog(
        1, ("public",), {"public": Schema(1, "public", None, usage)}, TYPES, {}, (), tuple(functions),
        {"anon": Role(2, "anon", superuser=False, grantees=frozenset({0, 2}), settings=())},
    )  # fmt: skip
    return replace(catalog, registry=allocate_names(catalog)[0])


def entries(*functions: Function) -> dict[str, FunctionField]:
    """Return the GraphQL fields of the functions."""
    catalog = catalog_of(functions)
    view = CatalogView(catalog, CatalogNames(catalog), "anon")
    return function_fields(view, volatile=False)


def chosen(entry: FunctionField, *arguments: str) -> int | None:
    """Return the OID of the function that a call with these arguments selects."""
    overload = entry.choose(arguments)
    return None if overload is None else overload.function.oid


def test_overloads_with_different_argument_names_share_a_field() -> None:
    fields = entries(
        function(1, "find", TEXT, ("id", INT)),
        function(2, "find", TEXT, ("email", TEXT)),
        function(3, "find", TEXT, ("id", INT), ("email", TEXT)),
        function(4, "find", TEXT),
    )
    assert list(fields) == ["find"]
    entry = fields["find"]
    assert {name: required for name, (_, required) in entry.arguments().items()} == {
        "id": False,
        "email": False,
    }
    assert [chosen(entry), chosen(entry, "id"), chosen(entry, "email"), chosen(entry, "email", "id")] == [
        4,
        1,
        2,
        3,
    ]
    assert chosen(entry, "other") is None


def test_argument_required_by_every_overload_is_required() -> None:
    entry = entries(function(1, "f", TEXT, ("a", INT)), function(2, "f", TEXT, ("a", INT), ("b", INT)))["f"]
    assert {name: required for name, (_, required) in entry.arguments().items()} == {"a": True, "b": False}


def test_overload_with_the_fewest_arguments_is_chosen() -> None:
    entry = entries(
        function(1, "f", TEXT, ("a", INT), ("b", INT, "1"), ("c", INT, "2")),
        function(2, "f", TEXT, ("a", INT), ("b", INT, "1")),
    )["f"]
    assert [chosen(entry, "a"), chosen(entry, "a", "b"), chosen(entry, "a", "c")] == [2, 2, 1]
    assert chosen(entry, "b") is None, "a is required"


@pytest.mark.parametrize(
    "other",
    [
        function(2, "f", INT, ("b", INT)),
        function(2, "f", TEXT, ("a", TEXT)),
        function(2, "f", TEXT, ("a", BOOL), ("b", INT)),
        function(2, "f", TEXT, ("a", INT, "1")),
    ],
    ids=["other result", "other type", "other type and argument", "same names"],
)
def test_incompatible_overloads_have_separate_fields(other: Function) -> None:
    """Overloads of a field have the same result type, and arguments of equal names have equal types."""
    fields = entries(function(1, "f", TEXT, ("a", INT)), other)
    names = [item.name[0].upper() + item.name[1:] for item in other.arguments]
    assert sorted(fields) == ["f", f"fBy{'And'.join(names)}"]
    assert [overload.function.oid for entry in fields.values() for overload in entry.overloads] in (
        [1, 2],
        [2, 1],
    )


def test_field_of_an_overload_never_takes_another_functions_name() -> None:
    fields = entries(
        function(1, "f", TEXT, ("a", INT)),
        function(2, "f", INT, ("b", INT)),
        function(3, "fByB", BOOL),
    )
    by_name = {name: entry.overloads[0].function.oid for name, entry in fields.items()}
    assert by_name == {"f": 1, "fByB_2": 2, "fByB": 3}


def test_error_lists_every_overload() -> None:
    entry = entries(function(1, "f", TEXT, ("a", INT)), function(2, "f", TEXT, ("b", INT), ("c", INT)))["f"]
    message = "No overload of f accepts the arguments (a, c). Overloads: f(a), f(b, c)"
    assert arguments_error(entry, ["c", "a"]) == message


@pytest.mark.parametrize(
    ("sql", "type_", "value"),
    [
        ("5", INT, 5),
        ("'-5'::integer", INT, -5),
        ("(-5)", INT, -5),
        ("1.5", FLOAT, 1.5),
        ("'1e5'::double precision", FLOAT, None),
        ("true", BOOL, True),
        ("'a, b'::text", TEXT, "a, b"),
        ("'it''s'::text", TEXT, "it's"),
        ("'x'::character varying", TEXT, "x"),
        ("NULL::text", TEXT, None),
        ("now()", TEXT, None),
        ("upper('x'::text)", TEXT, None),
        ("('a'::text || 'b'::text)", TEXT, None),
        ("E'a\\\\b'::text", TEXT, None),
        ("1.5", INT, None),
        ("'{1,2}'::integer[]", INTS, None),
        (None, INT, None),
    ],
)
def test_constant_defaults_are_shown(sql: str | None, type_: int, value: object) -> None:
    mapping = mapping_of(catalog_of(()), type_)
    assert mapping is not None
    shown = constant_default(sql, mapping)
    assert (None if shown is None else shown.value) == value
