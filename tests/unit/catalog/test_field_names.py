"""GraphQL names follow pg_graphql's rules and stay unique (docs/reference/graphql.md, Names)."""

from __future__ import annotations

import json

import pytest
from dataapi.catalog.model import Catalog
from dataapi.catalog.names import CatalogNames, FieldNames, enum_values, lower_first, pascal_case
from dataapi.catalog.registry import EnumType, TableType
from hypothesis import given
from hypothesis import strategies as st
from support.catalog import MadeUp

INFLECTED = '@graphql({"inflect_names": true})'


def directive(**members: object) -> str:
    return f"@graphql({json.dumps(members)})"


def fields(catalog: Catalog, table: int) -> FieldNames:
    """Return the field names of a table's type."""
    return CatalogNames(catalog).fields(table)


def relationship_names(catalog: Catalog, table: int) -> list[str]:
    """Return the names of the relationship fields of a table's type."""
    return [name for _, name in fields(catalog, table).relationships]


@pytest.mark.parametrize(
    ("name", "pascal"),
    [
        ("account_holder", "AccountHolder"),
        ("account_BY_email", "AccountBYEmail"),
        ("blogPost", "BlogPost"),
        ("_private", "Private"),
        ("a__b", "AB"),
        ("t1_2x", "T12x"),
        ("x", "X"),
    ],
)
def test_inflection_capitalizes_words_and_drops_underscores(name: str, pascal: str) -> None:
    assert pascal_case(name) == pascal
    assert lower_first(pascal) == pascal[0].lower() + pascal[1:]


def test_names_are_unchanged_by_default() -> None:
    builder = MadeUp()
    holder = builder.table("account_holder", "id", "full_name")
    post = builder.table("Post", "id", "account_holder_id")
    builder.foreign_key("fk", "Post", ["account_holder_id"], "account_holder")
    catalog = builder.catalog()
    assert catalog.base_names == {holder: "account_holder", post: "Post"}
    assert fields(catalog, holder).columns == {"id": "id", "full_name": "full_name"}
    assert relationship_names(catalog, holder) == ["postCollection"]
    assert relationship_names(catalog, post) == ["account_holder"]


def test_inflection_is_enabled_per_schema() -> None:
    builder = MadeUp(INFLECTED)
    holder = builder.table("account_holder", "id", "full_name")
    post = builder.table("blog_post", "id", "owner_id")
    builder.foreign_key("fk", "blog_post", ["owner_id"], "account_holder")
    catalog = builder.catalog()
    assert catalog.base_names == {holder: "AccountHolder", post: "BlogPost"}
    assert fields(catalog, holder).columns == {"id": "id", "full_name": "fullName"}
    assert relationship_names(catalog, holder) == ["blogPostCollection"]
    assert relationship_names(catalog, post) == ["owner"]


def test_key_column_suffix_is_capitalized_without_inflection() -> None:
    """The field for ``ownerId`` is ``owner``. The field for ``owner_id`` has the table's name."""
    builder = MadeUp()
    builder.table("Account", "id")
    blog = builder.table("blog", "id", "ownerId")
    post = builder.table("post", "id", "owner_id")
    builder.foreign_key("a", "blog", ["ownerId"], "Account")
    builder.foreign_key("b", "post", ["owner_id"], "Account")
    catalog = builder.catalog()
    assert relationship_names(catalog, blog) == ["owner"]
    assert relationship_names(catalog, post) == ["account"]


def test_one_to_one_relationship_is_singular_on_both_sides() -> None:
    builder = MadeUp(INFLECTED)
    employee = builder.table("employee", "id", "person_id", unique=[["person_id"]])
    address = builder.table("email_address", "id", "employee_id", unique=[["employee_id"]])
    badge = builder.table("badge", "id", "person_id", unique=[["person_id"]])
    builder.foreign_key("a", "email_address", ["employee_id"], "employee")
    builder.foreign_key("b", "badge", ["person_id"], "employee", foreign_columns=["person_id"])
    catalog = builder.catalog()
    assert relationship_names(catalog, address) == ["employee"]
    assert relationship_names(catalog, badge) == ["person"]
    assert relationship_names(catalog, employee) == ["person", "emailAddress"]


def test_composite_foreign_keys_are_named_after_the_table() -> None:
    builder = MadeUp(INFLECTED)
    builder.table("order_line", "order_id", "line_id", key=("order_id", "line_id"))
    shipment = builder.table("shipment", "id", "order_id", "line_id")
    builder.foreign_key(
        "fk", "shipment", ["order_id", "line_id"], "order_line", foreign_columns=["order_id", "line_id"]
    )
    assert relationship_names(builder.catalog(), shipment) == ["orderLine"]


def test_self_reference_has_both_sides() -> None:
    builder = MadeUp(INFLECTED)
    node = builder.table("tree_node", "id", "parent_id")
    builder.foreign_key("fk", "tree_node", ["parent_id"], "tree_node")
    assert relationship_names(builder.catalog(), node) == ["parent", "treeNodeCollection"]


def test_directives_rename_types_columns_functions_and_keys() -> None:
    builder = MadeUp(INFLECTED)
    account = builder.table(
        "account", "id", "email", comment=directive(name="User"), comments={"email": directive(name="mail")}
    )
    row_type = builder.catalog().tables[account].type
    builder.function("_initials", row_type)
    builder.function("shout", row_type, comment=directive(name="loudly"))
    blog = builder.table("blog", "id", "owner_id")
    builder.foreign_key(
        "fk", "blog", ["owner_id"], "account", directive(local_name="blogs", foreign_name="author")
    )
    catalog = builder.catalog()
    assert catalog.base_names[account] == "User"
    assert fields(catalog, account).columns["email"] == "mail"
    assert [name for _, name in fields(catalog, account).computed] == ["initials", "loudly"]
    assert relationship_names(catalog, account) == ["blogs"]
    assert relationship_names(catalog, blog) == ["author"]


def clash_messages(catalog: Catalog) -> dict[str, str]:
    """Return the message of each name clash, by object."""
    assert all(problem.clash for problem in catalog.problems)
    return {problem.place: problem.message for problem in catalog.problems}


def test_last_of_several_keys_between_two_tables_gets_the_plain_field() -> None:
    builder = MadeUp(INFLECTED)
    account = builder.table("account", "id")
    blog = builder.table("blog", "id", "author", "editor")
    builder.foreign_key("z_author", "blog", ["author"], "account")
    builder.foreign_key("a_editor", "blog", ["editor"], "account")
    catalog = builder.catalog()
    assert relationship_names(catalog, account) == ["blogCollection", "blogCollectionByEditor"]
    assert relationship_names(catalog, blog) == ["account", "accountByEditor"]
    other = "foreign key z_author of table public.blog"
    assert [problem.message for problem in catalog.problems] == [
        f"the GraphQL field blogCollection of Account belongs to {other};"
        " this one is named blogCollectionByEditor",
        f"the GraphQL field account of Blog belongs to {other}; this one is named accountByEditor",
    ]
    assert {problem.place for problem in catalog.problems} == {"foreign key a_editor of table public.blog"}


def test_column_is_renamed_for_a_relationship_in_the_object_type_only() -> None:
    builder = MadeUp(INFLECTED)
    builder.table("account", "id")
    blog = builder.table("blog", "id", "owner", "owner_id")
    builder.foreign_key("fk", "blog", ["owner_id"], "account")
    catalog = builder.catalog()
    names_of_type = fields(catalog, blog)
    assert names_of_type.columns["owner"] == "owner_2"
    assert names_of_type.inputs["owner"] == "owner"
    assert relationship_names(catalog, blog) == ["owner"]
    assert names_of_type.other_inputs == {"owner": "accountByOwnerId"}
    assert clash_messages(catalog) == {
        "column public.blog.owner": "the GraphQL field owner of Blog belongs to foreign key fk of table"
        " public.blog; this one is named owner_2, but owner in filters, orders, inputs and aggregates"
    }


def test_function_takes_precedence_over_key_but_not_over_column() -> None:
    builder = MadeUp(INFLECTED)
    account = builder.table("account", "id", "count", "parent_id")
    row_type = builder.catalog().tables[account].type
    builder.row_type("account", account)
    builder.foreign_key("fk", "account", ["parent_id"], "account")
    counting = builder.function("_count", row_type)
    builder.function("_parent", row_type)
    parent = builder.function("parent", row_type)
    catalog = builder.catalog()
    names_of_type = fields(catalog, account)
    assert names_of_type.columns["count"] == "count"
    assert [
        (function.oid, name) for function, name in names_of_type.computed if name in ("count_2", "parent")
    ] == [
        (counting, "count_2"),
        (parent, "parent"),
    ]
    assert [name for _, name in names_of_type.computed] == ["count_2", "parent_2", "parent"]
    assert relationship_names(catalog, account) == ["accountByParentId", "accountCollection"]
    assert set(clash_messages(catalog)) == {
        "function public._count",
        "foreign key fk of table public.account",
        "function public._parent",
    }


def test_function_that_is_no_field_reserves_no_name() -> None:
    builder = MadeUp()
    account = builder.table("account", "id", "note", "log")
    row_type = builder.catalog().tables[account].type
    builder.row_type("account", account)
    builder.function("_note", row_type, returns_set=True)
    builder.function("_log", row_type, returns=2278)
    builder.function("log", row_type, acl="nobody")
    builder.function("accountCollection", acl="nobody")
    catalog = builder.catalog()
    assert fields(catalog, account).columns == {"id": "id", "note": "note", "log": "log"}
    assert fields(catalog, account).computed == ()
    assert catalog.problems == ()


def test_last_of_columns_with_equal_inflected_names_gets_the_field() -> None:
    """A column never gets the name ``nodeId``, because that field identifies the row."""
    builder = MadeUp(INFLECTED)
    table = builder.table("t", "_id", "id", "aB", "a_b", "node_id")
    catalog = builder.catalog()
    names_of_type = fields(catalog, table)
    assert names_of_type.columns == {
        "_id": "_id",
        "id": "id",
        "aB": "aB_2",
        "a_b": "aB",
        "node_id": "node_id",
    }
    assert names_of_type.inputs == names_of_type.columns
    assert clash_messages(catalog) == {
        "column public.t._id": "the GraphQL field id of T belongs to column public.t.id; this one"
        " is named _id",
        "column public.t.aB": "the GraphQL field aB of T belongs to column public.t.a_b; this one"
        " is named aB_2",
        "column public.t.node_id": "the GraphQL field nodeId of T belongs to the row's node ID; this one"
        " is named node_id",
    }


def test_names_in_directives_follow_the_same_precedence() -> None:
    builder = MadeUp()
    table = builder.table("t", "id", "a", "b", comments={"a": directive(name="b")})
    assert fields(builder.catalog(), table).columns == {"id": "id", "a": "a", "b": "b"}
    builder = MadeUp()
    builder.table("account", "id")
    blog = builder.table("blog", "id", "x", "y", comments={"x": directive(name="author")})
    builder.foreign_key("a", "blog", ["x"], "account", directive(foreign_name="author"))
    builder.foreign_key("b", "blog", ["y"], "account", directive(foreign_name="author"))
    catalog = builder.catalog()
    assert fields(catalog, blog).columns["x"] == "x"
    assert relationship_names(catalog, blog) == ["accountByx", "author"]


def test_table_entry_points_take_precedence_over_functions() -> None:
    builder = MadeUp()
    builder.table("account", "id")
    collection = builder.function("accountCollection")
    node = builder.function("node")
    first = builder.function("a_greeting", comment=directive(name="greeting"))
    last = builder.function("b_greeting", comment=directive(name="greeting"))
    catalog = builder.catalog()
    assert catalog.registry.functions == {
        collection: "accountCollection_2",
        node: "node_2",
        first: "greeting_2",
        last: "greeting",
    }
    assert clash_messages(catalog) == {
        "function public.accountCollection": "the GraphQL entry point accountCollection belongs to table"
        " public.account; this one is named accountCollection_2",
        "function public.node": "the GraphQL entry point node belongs to a built-in field; this one"
        " is named node_2",
        "function public.a_greeting": "the GraphQL entry point greeting belongs to function"
        " public.b_greeting; this one is named greeting_2",
    }


def test_invalid_names_are_omitted() -> None:
    builder = MadeUp()
    good = builder.table("good", "id", "two words", "__x", "été")
    bad = builder.table("not good", "id", "good_id")
    builder.foreign_key("fk", "not good", ["good_id"], "good")
    catalog = builder.catalog()
    assert bad not in catalog.base_names
    assert fields(catalog, good).columns == {"id": "id"}
    assert relationship_names(catalog, good) == []


def test_table_without_key_has_no_type() -> None:
    builder = MadeUp(schemas=("public", "other"))
    builder.table("account", "id", key=())
    other = builder.table("account", "id", schema="other")
    assert builder.catalog().base_names == {other: "account"}


def test_equal_table_names_in_two_schemas_get_distinct_types() -> None:
    builder = MadeUp(INFLECTED, schemas=("public", "shop"))
    second = builder.table("account", "id", schema="shop")
    first = builder.table("Account", "id")
    catalog = builder.catalog()
    assert catalog.base_names == {first: "Account", second: "shop_account"}
    (problem,) = catalog.problems
    assert problem.place == "table shop.account"
    assert problem.message == (
        "the GraphQL name account is taken by table public.Account; its type is named shop_account"
    )


def test_table_types_take_precedence_over_enum_types() -> None:
    builder = MadeUp()
    builder.table("mood", "id")
    builder.table("stateList", "id")
    mood, state = builder.enum("mood", "sad"), builder.enum("state", "on")
    scalar = builder.enum("Time", "past")
    catalog = builder.catalog()
    names = [catalog.base_names[oid] for oid in (mood, state, scalar)]
    assert names == ["public_mood", "state", "public_Time"]
    assert catalog.name_of_type(state, EnumType.LIST_FILTER) == "stateListFilter_2"
    assert clash_messages(catalog) == {
        "enum public.mood": "the GraphQL name mood is taken by table public.mood;"
        " its type is named public_mood",
        "enum public.state": "the GraphQL name stateListFilter is taken by the Filter type of table"
        " public.stateList; its ListFilter type is named stateListFilter_2",
        "enum public.Time": "the GraphQL name Time is taken by a built-in type;"
        " its type is named public_Time",
    }


def test_table_name_takes_precedence_over_derived_type_name() -> None:
    """``BlogEdge`` is a table, so the edge type of ``Blog`` gets another name. ``Query`` is the root type."""
    builder = MadeUp()
    blog = builder.table("Blog", "id")
    edge = builder.table("BlogEdge", "id")
    query = builder.table("Query", "id")
    plain = builder.table("node", "id")
    catalog = builder.catalog()
    assert catalog.base_names == {blog: "Blog", edge: "BlogEdge", query: "public_Query", plain: "node"}
    assert catalog.name_of_type(blog, TableType.EDGE) == "BlogEdge_2"
    assert clash_messages(catalog) == {
        "table public.Blog": "the GraphQL name BlogEdge is taken by table public.BlogEdge; its Edge type is"
        " named BlogEdge_2",
        "table public.Query": "the GraphQL name Query is taken by a built-in type; its type is named"
        " public_Query",
    }


def test_enum_with_an_invalid_label_is_no_graphql_enum() -> None:
    builder = MadeUp()
    good = builder.enum("status", "open", "closed")
    bad = builder.enum("cipher", "aead-ietf", "plain")
    mapped = builder.enum(
        "mode", "aead-ietf", "plain", comment=directive(mappings={"aead-ietf": "AEAD_IETF"})
    )
    word = builder.enum("answer", "yes", "null")
    catalog = builder.catalog()
    assert enum_values(catalog, catalog.types[good]) == {"open": "open", "closed": "closed"}
    assert enum_values(catalog, catalog.types[bad]) is None
    assert enum_values(catalog, catalog.types[mapped]) == {"aead-ietf": "AEAD_IETF", "plain": "plain"}
    assert enum_values(catalog, catalog.types[word]) is None


names = st.lists(
    st.text(alphabet="abAB_i d", min_size=1, max_size=5).filter(lambda name: name != "id"),
    unique=True,
    max_size=6,
)


@given(names, names, st.booleans())
def test_field_names_of_a_type_are_unique(columns: list[str], others: list[str], inflection: bool) -> None:
    builder = MadeUp(INFLECTED if inflection else None)
    builder.table("a", "id", "a_id")
    table = builder.table("b", "id", *columns)
    for name in columns:
        builder.foreign_key(f"fk {name}", "b", [name], "a")
    if others:
        builder.table("c", "id", *others)
        for name in others:
            builder.foreign_key(f"fk {name}", "c", [name], "b")
    catalog = builder.catalog()
    names_of_type = fields(catalog, table)
    every = ["nodeId", *names_of_type.columns.values(), *(name for _, name in names_of_type.relationships)]
    assert len(every) == len(set(every))
    assert len(names_of_type.relationships) == len(columns) + len(others)
