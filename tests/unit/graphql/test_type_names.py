"""Type names are unique for any names of tables, enums and composite types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import graphql as gql
import pytest
from dataapi.catalog.allocation import RESERVED_TYPES
from dataapi.catalog.directives import FEATURES
from dataapi.catalog.names import CatalogNames, root_field
from dataapi.catalog.registry import FEATURE_OF_SHARED_TYPE, EnumType, TableFieldKind, TableType
from dataapi.graphql.document import Document, Limits
from dataapi.graphql.literal_parameters import NO_PARAMETERS
from dataapi.graphql.plan import compile_plan
from dataapi.graphql.schema.catalog_view import CatalogView, TableView
from dataapi.graphql.schema.role_schema import MUTATION, QUERY, RoleSchema, TableField
from dataapi.graphql.schema.shared_types import COMMON_TYPES, types_of_features
from hypothesis import given
from hypothesis import strategies as st
from support.catalog import MadeUp
from support.oracle import eager

if TYPE_CHECKING:
    from dataapi.catalog.model import Catalog

INFLECTED = '@graphql({"inflect_names": true, "introspection": true})'
UNCHANGED = '@graphql({"introspection": true})'
LIMITS = Limits(50, 1000, 20_000, 5_000_000)
EVERY_FEATURE = frozenset(FEATURES)
ENDINGS = sorted({*TableType, *EnumType, "Collection", "ByPk"} - {""})
STEMS = (
    "t",
    "user",
    "User",
    "Node",
    "PageInfo",
    "Is",
    "IsFilter",
    "Int",
    "String",
    "JSON",
    "JSONPath",
    "StringSearch",
)
NAMES = st.builds(
    lambda stem, endings: (stem, *endings),
    st.sampled_from((*STEMS, "TextSearch", "Subscription", "Query", "t_2", "IntListFilter")),
    st.lists(st.sampled_from(ENDINGS), max_size=2),
)


def spelled(parts: tuple[str, ...], *, inflection: bool) -> str:
    """Return a table name, in snake case if names are inflected."""
    if not inflection:
        return "".join(parts)
    return "_".join(re.sub("(?<=[a-z])(?=[A-Z])", "_", part) for part in parts).lower()


def catalog_of(
    tables: list[str], enums: list[str], composites: list[str], *, inflection: bool, features: frozenset[str]
) -> Catalog:
    """Return a catalog. Each table has a column of each enum type, and a column of each enum's array type."""
    builder = MadeUp(INFLECTED if inflection else UNCHANGED, superuser=True, features=features)
    types: dict[str, int] = {}
    for number, name in enumerate(enums):
        types[f"e{number}"] = builder.enum(name, "on", "off")
        types[f"l{number}"] = builder.array(types[f"e{number}"])
    for name in composites:
        builder.composite(name)
    for name in tables:
        builder.table(name, "id", "label", "parent_id", *types, types=types)
        builder.foreign_key(f"{name}_parent", name, ["parent_id"], tables[0])
    return builder.catalog()


def schema_of(catalog: Catalog) -> RoleSchema:
    return RoleSchema(CatalogView(catalog, CatalogNames(catalog), "anon"))


def check_schema(schema: RoleSchema) -> None:
    """Fail unless the schema is valid and contains each of its types by name."""
    assert {name: type_.name for name, type_ in schema.schema.type_map.items()} == {
        name: name for name in schema.schema.type_map
    }
    complete = eager(schema)
    assert gql.validate_schema(complete) == []
    assert complete.type_map.keys() == schema.schema.type_map.keys()
    result = gql.execute_sync(schema.schema, gql.parse(gql.get_introspection_query(descriptions=False)))
    assert result.errors is None
    assert result.data is not None
    gql.build_client_schema(result.data)  # type: ignore[arg-type]  # an introspection result


def check_table(schema: RoleSchema, view: TableView, enums: int) -> None:
    """Fail unless a table's root fields return its rows, and its filters use its enum types."""
    for kind in TableFieldKind:
        root, fields = (
            (QUERY, schema.query_fields) if kind.value[0] == "" else (MUTATION, schema.mutation_fields)
        )
        name = root_field(kind, view.name)
        assert fields.find(name) == TableField(kind, view)
        assert name in schema.object_type(root).fields
    collection = schema.object_type(QUERY).fields[root_field(TableFieldKind.COLLECTION, view.name)]
    edges = gql.get_named_type(gql.get_named_type(collection.type).fields["edges"].type)
    assert edges.fields["node"].type.name == view.name
    members = collection.args["filter"].type.fields
    for number in range(enums):
        value = schema.object_type(view.name).fields[f"e{number}"].type
        assert members[f"e{number}"].type.fields["eq"].type is value
        assert str(members[f"l{number}"].type.fields["contains"].type) == f"[{value}!]"
    (parent,) = (related.name for related in view.related if related.outgoing)
    text = (
        f"query Q($of: {gql.get_named_type(members['and'].type)}) {{"
        f" {root_field(TableFieldKind.COLLECTION, view.name)}(filter: $of)"
        f" {{ edges {{ node {{ __typename id {parent} {{ id }} }} }} }} }}"
    )
    operation = Document(text, schema, LIMITS).operation(None)
    plan = compile_plan(operation, schema, operation.coerce({}, NO_PARAMETERS).input)
    assert plan.errors == ()


@given(
    st.lists(NAMES, min_size=2, max_size=4, unique=True),
    st.lists(NAMES, max_size=2, unique=True),
    st.lists(NAMES, max_size=2, unique=True),
    st.booleans(),
    st.booleans(),
)
def test_each_table_and_enum_has_its_own_types_and_fields(
    tables: list[tuple[str, ...]],
    enums: list[tuple[str, ...]],
    composites: list[tuple[str, ...]],
    inflection: bool,
    featured: bool,
) -> None:
    used: set[str] = set()
    names: list[list[str]] = []
    for group in (tables, enums, composites):  # tables and types share a namespace in PostgreSQL
        spelt = [spelled(parts, inflection=inflection) for parts in group]
        names.append([name for name in dict.fromkeys(spelt) if name not in used])
        used.update(spelt)
    catalog = catalog_of(*names, inflection=inflection, features=EVERY_FEATURE if featured else frozenset())
    schema = schema_of(catalog)
    check_schema(schema)
    for oid in catalog.tables:
        view = schema.view.table(oid)
        assert view is not None
        check_table(schema, view, len(names[1]))


@pytest.mark.parametrize("features", [frozenset(), EVERY_FEATURE], ids=["plain", "features"])
@pytest.mark.parametrize("inflection", [False, True], ids=["unchanged", "inflected"])
@pytest.mark.parametrize("of_enums", [False, True], ids=["tables", "enums"])
def test_names_with_any_suffix_can_coexist(
    *, of_enums: bool, inflection: bool, features: frozenset[str]
) -> None:
    others = [spelled(("user", ending), inflection=inflection) for ending in ENDINGS]
    tables, enums = (["user"], others) if of_enums else (["user", *others], ["mood"])
    catalog = catalog_of(tables, enums, [], inflection=inflection, features=features)
    schema = schema_of(catalog)
    check_schema(schema)
    for oid in catalog.tables:
        view = schema.view.table(oid)
        assert view is not None
        check_table(schema, view, len(enums))
    assert catalog.base_names[min(catalog.tables)] == ("User" if inflection else "user")
    problems = [problem for problem in catalog.problems if "the GraphQL name" in problem.message]
    assert all(problem.clash for problem in problems)
    assert len(problems) == len(catalog.registry.renamed)


@pytest.mark.parametrize("feature", FEATURES)
def test_enabling_a_feature_renames_no_existing_type(feature: str) -> None:
    shared = ["text_search", "subscription", "j_s_o_n_path_filter", "string_search"]
    tables = ["user", *shared, *(spelled(("user", ending), inflection=True) for ending in ENDINGS)]
    plain = catalog_of(tables, ["mood"], [], inflection=True, features=frozenset())
    featured = catalog_of(tables, ["mood"], [], inflection=True, features=frozenset({feature}))
    assert featured.base_names == plain.base_names
    assert plain.registry.types.items() <= featured.registry.types.items()


def test_table_has_precedence_over_a_type_of_a_feature() -> None:
    tables = ["TextSearch", "StringSearchFilter", "JSONFilter", "JSONPath", "Subscription"]
    catalog = catalog_of(tables, [], [], inflection=False, features=EVERY_FEATURE)
    schema = schema_of(catalog)
    check_schema(schema)
    assert sorted(catalog.base_names.values()) == sorted(tables)
    assert catalog.registry.shared == {
        "JSONFilter": "JSONFilter_2",
        "JSONPathFilter": "JSONPathFilter_2",
        "StringSearchFilter": "StringSearchFilter_2",
        "Subscription": "Subscription_2",
        "TextSearch": "TextSearch_2",
    }
    label = schema.object_type("TextSearchFilter").fields["label"].type
    assert (label.name, label.fields["search"].type.name) == ("StringSearchFilter_2", "TextSearch_2")
    assert schema.schema.subscription_type.name == "Subscription_2"
    text = "subscription { ... on Subscription_2 { textSearchCollection { edges { cursor } } } }"
    operation = Document(text, schema, LIMITS).operation(None)
    assert compile_plan(operation, schema, operation.coerce({}, NO_PARAMETERS).input).keys == (
        "textSearchCollection",
    )
    assert {
        "feature subscriptions: the GraphQL name Subscription is taken by table public.Subscription;"
        " this one is named Subscription_2",
        "feature jsonFilters: the GraphQL name JSONPathFilter is taken by the Filter type of table"
        " public.JSONPath; this one is named JSONPathFilter_2",
    } <= {f"{problem.place}: {problem.message}" for problem in catalog.problems}


def test_names_of_common_types_are_reserved() -> None:
    assert {*COMMON_TYPES, QUERY, MUTATION} == RESERVED_TYPES
    assert types_of_features({name: name for name in FEATURE_OF_SHARED_TYPE}).keys() == (
        FEATURE_OF_SHARED_TYPE.keys() - {"Subscription"}
    )
