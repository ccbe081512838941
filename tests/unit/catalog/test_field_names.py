"""GraphQL names: pg_graphql's rules, and that clashes lose nothing (docs/reference/graphql.md, Names)."""

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
    """Write a directive."""
    return f"@graphql({json.dumps(members)})"


def fields(catalog: Catalog, table: int) -> FieldNames:
    """Name the fields of a table's type."""
    return CatalogNames(catalog).fields(table)


def relationship_names(catalog: Catalog, table: int) -> list[str]:
    """Name the relationship fields of a table's type."""
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
def test_inflection_raises_each_first_letter_and_drops_underscores(name: str, pascal: str) -> None:
    """As pg_graphql does, letter for letter."""
    assert pascal_case(name) == pascal
    assert lower_first(pascal) == pascal[0].lower() + pascal[1:]


def test_names_are_unchanged_by_default() -> None:
    """Table and column names go through as they are; a collection's begins with a small letter."""
    made = MadeUp()
    holder = made.table("account_holder", "id", "full_name")
    post = made.table("Post", "id", "account_holder_id")
    made.foreign_key("fk", "Post", ["account_holder_id"], "account_holder")
    catalog = made.catalog()
    assert catalog.base_names == {holder: "account_holder", post: "Post"}
    assert fields(catalog, holder).columns == {"id": "id", "full_name": "full_name"}
    assert relationship_names(catalog, holder) == ["postCollection"]
    assert relationship_names(catalog, post) == ["account_holder"]


def test_inflection_is_a_schemas_choice() -> None:
    """Types in Pascal case, fields in camel case."""
    made = MadeUp(INFLECTED)
    holder = made.table("account_holder", "id", "full_name")
    post = made.table("blog_post", "id", "owner_id")
    made.foreign_key("fk", "blog_post", ["owner_id"], "account_holder")
    catalog = made.catalog()
    assert catalog.base_names == {holder: "AccountHolder", post: "BlogPost"}
    assert fields(catalog, holder).columns == {"id": "id", "full_name": "fullName"}
    assert relationship_names(catalog, holder) == ["blogPostCollection"]
    assert relationship_names(catalog, post) == ["owner"]


def test_without_inflection_the_suffix_of_a_key_column_is_capital() -> None:
    """``ownerId`` gives ``owner``; ``owner_id`` gives the table's name."""
    made = MadeUp()
    made.table("Account", "id")
    blog = made.table("blog", "id", "ownerId")
    post = made.table("post", "id", "owner_id")
    made.foreign_key("a", "blog", ["ownerId"], "Account")
    made.foreign_key("b", "post", ["owner_id"], "Account")
    catalog = made.catalog()
    assert relationship_names(catalog, blog) == ["owner"]
    assert relationship_names(catalog, post) == ["account"]


def test_a_one_to_one_is_named_in_the_singular_on_both_sides() -> None:
    """The reverse side takes the referenced column's name if that ends in the suffix: a quirk to keep."""
    made = MadeUp(INFLECTED)
    employee = made.table("employee", "id", "person_id", unique=[["person_id"]])
    address = made.table("email_address", "id", "employee_id", unique=[["employee_id"]])
    badge = made.table("badge", "id", "person_id", unique=[["person_id"]])
    made.foreign_key("a", "email_address", ["employee_id"], "employee")
    made.foreign_key("b", "badge", ["person_id"], "employee", foreign_columns=["person_id"])
    catalog = made.catalog()
    assert relationship_names(catalog, address) == ["employee"]
    assert relationship_names(catalog, badge) == ["person"]
    assert relationship_names(catalog, employee) == ["person", "emailAddress"]


def test_composite_keys_are_named_after_the_table() -> None:
    """There is no one column to name them after."""
    made = MadeUp(INFLECTED)
    made.table("order_line", "order_id", "line_id", key=("order_id", "line_id"))
    shipment = made.table("shipment", "id", "order_id", "line_id")
    made.foreign_key(
        "fk", "shipment", ["order_id", "line_id"], "order_line", foreign_columns=["order_id", "line_id"]
    )
    assert relationship_names(made.catalog(), shipment) == ["orderLine"]


def test_a_self_reference_has_both_sides() -> None:
    """A tree's rows know their parent and their children."""
    made = MadeUp(INFLECTED)
    node = made.table("tree_node", "id", "parent_id")
    made.foreign_key("fk", "tree_node", ["parent_id"], "tree_node")
    assert relationship_names(made.catalog(), node) == ["parent", "treeNodeCollection"]


def test_directives_name_types_columns_functions_and_both_sides_of_a_key() -> None:
    """An override wins over every rule."""
    made = MadeUp(INFLECTED)
    account = made.table(
        "account", "id", "email", comment=directive(name="User"), comments={"email": directive(name="mail")}
    )
    row_type = made.catalog().tables[account].type
    made.function("_initials", row_type)
    made.function("shout", row_type, comment=directive(name="loudly"))
    blog = made.table("blog", "id", "owner_id")
    made.foreign_key(
        "fk", "blog", ["owner_id"], "account", directive(local_name="blogs", foreign_name="author")
    )
    catalog = made.catalog()
    assert catalog.base_names[account] == "User"
    assert fields(catalog, account).columns["email"] == "mail"
    assert [name for _, name in fields(catalog, account).computed] == ["initials", "loudly"]
    assert relationship_names(catalog, account) == ["blogs"]
    assert relationship_names(catalog, blog) == ["author"]


def clashes(catalog: Catalog) -> dict[str, str]:
    """Return what is said of each thing that did not get the name it asks for."""
    assert all(problem.clash for problem in catalog.problems)
    return {problem.place: problem.message for problem in catalog.problems}


def test_of_several_keys_between_the_same_tables_the_last_by_name_has_the_plain_field() -> None:
    """As in pg_graphql after a dump and restore; the other one is named after its columns too."""
    made = MadeUp(INFLECTED)
    account = made.table("account", "id")
    blog = made.table("blog", "id", "author", "editor")
    made.foreign_key("z_author", "blog", ["author"], "account")
    made.foreign_key("a_editor", "blog", ["editor"], "account")
    catalog = made.catalog()
    assert relationship_names(catalog, account) == ["blogCollection", "blogCollectionByEditor"]
    assert relationship_names(catalog, blog) == ["account", "accountByEditor"]
    other = "foreign key z_author of table public.blog"
    assert [problem.message for problem in catalog.problems] == [
        f"the GraphQL field blogCollection of Account belongs to {other};"
        " this one is named blogCollectionByEditor",
        f"the GraphQL field account of Blog belongs to {other}; this one is named accountByEditor",
    ]
    assert {problem.place for problem in catalog.problems} == {"foreign key a_editor of table public.blog"}


def test_a_column_gives_way_to_a_relationship_in_the_object_type_alone() -> None:
    """Filters and inputs have no relationships: there the name is the column's."""
    made = MadeUp(INFLECTED)
    made.table("account", "id")
    blog = made.table("blog", "id", "owner", "owner_id")
    made.foreign_key("fk", "blog", ["owner_id"], "account")
    catalog = made.catalog()
    found = fields(catalog, blog)
    assert found.columns["owner"] == "owner_2"
    assert found.inputs["owner"] == "owner"
    assert relationship_names(catalog, blog) == ["owner"]
    assert found.other_inputs == {"owner": "accountByOwnerId"}
    assert clashes(catalog) == {
        "column public.blog.owner": "the GraphQL field owner of Blog belongs to foreign key fk of table"
        " public.blog; this one is named owner_2, but owner in filters, orders, inputs and aggregates"
    }


def test_a_function_has_the_field_of_a_key_and_never_that_of_a_column() -> None:
    """Functions come last, and among them the last one by schema and name; none replaces a column."""
    made = MadeUp(INFLECTED)
    account = made.table("account", "id", "count", "parent_id")
    row_type = made.catalog().tables[account].type
    made.row_type("account", account)
    made.foreign_key("fk", "account", ["parent_id"], "account")
    counting = made.function("_count", row_type)
    made.function("_parent", row_type)
    parent = made.function("parent", row_type)
    catalog = made.catalog()
    found = fields(catalog, account)
    assert found.columns["count"] == "count"
    assert [(function.oid, name) for function, name in found.computed if name in ("count_2", "parent")] == [
        (counting, "count_2"),
        (parent, "parent"),
    ]
    assert [name for _, name in found.computed] == ["count_2", "parent_2", "parent"]
    assert relationship_names(catalog, account) == ["accountByParentId", "accountCollection"]
    assert set(clashes(catalog)) == {
        "function public._count",
        "foreign key fk of table public.account",
        "function public._parent",
    }


def test_a_function_that_can_be_no_field_takes_no_name() -> None:
    """One that gives nothing, or several plain values, is no computed field; nor is one for no role."""
    made = MadeUp()
    account = made.table("account", "id", "note", "log")
    row_type = made.catalog().tables[account].type
    made.row_type("account", account)
    made.function("_note", row_type, returns_set=True)
    made.function("_log", row_type, returns=2278)
    made.function("log", row_type, acl="nobody")
    made.function("accountCollection", acl="nobody")
    catalog = made.catalog()
    assert fields(catalog, account).columns == {"id": "id", "note": "note", "log": "log"}
    assert fields(catalog, account).computed == ()
    assert catalog.problems == ()


def test_of_columns_that_inflect_alike_the_last_one_has_the_field() -> None:
    """A column never takes the place of ``nodeId``, which identifies the row."""
    made = MadeUp(INFLECTED)
    table = made.table("t", "_id", "id", "aB", "a_b", "node_id")
    catalog = made.catalog()
    found = fields(catalog, table)
    assert found.columns == {"_id": "_id", "id": "id", "aB": "aB_2", "a_b": "aB", "node_id": "node_id"}
    assert found.inputs == found.columns
    assert clashes(catalog) == {
        "column public.t._id": "the GraphQL field id of T belongs to column public.t.id; this one"
        " is named _id",
        "column public.t.aB": "the GraphQL field aB of T belongs to column public.t.a_b; this one"
        " is named aB_2",
        "column public.t.node_id": "the GraphQL field nodeId of T belongs to the row's node ID; this one"
        " is named node_id",
    }


def test_names_that_directives_give_follow_the_same_order() -> None:
    """A directive is no reason to come last."""
    made = MadeUp()
    table = made.table("t", "id", "a", "b", comments={"a": directive(name="b")})
    assert fields(made.catalog(), table).columns == {"id": "id", "a": "a", "b": "b"}
    made = MadeUp()
    made.table("account", "id")
    blog = made.table("blog", "id", "x", "y", comments={"x": directive(name="author")})
    made.foreign_key("a", "blog", ["x"], "account", directive(foreign_name="author"))
    made.foreign_key("b", "blog", ["y"], "account", directive(foreign_name="author"))
    catalog = made.catalog()
    assert fields(catalog, blog).columns["x"] == "x"
    assert relationship_names(catalog, blog) == ["accountByx", "author"]


def test_functions_give_way_to_the_entry_points_of_tables() -> None:
    """As in pg_graphql; the field of the function is numbered, and those of one name are two."""
    made = MadeUp()
    made.table("account", "id")
    collection = made.function("accountCollection")
    node = made.function("node")
    first = made.function("a_greeting", comment=directive(name="greeting"))
    last = made.function("b_greeting", comment=directive(name="greeting"))
    catalog = made.catalog()
    assert catalog.registry.functions == {
        collection: "accountCollection_2",
        node: "node_2",
        first: "greeting_2",
        last: "greeting",
    }
    assert clashes(catalog) == {
        "function public.accountCollection": "the GraphQL entry point accountCollection belongs to table"
        " public.account; this one is named accountCollection_2",
        "function public.node": "the GraphQL entry point node belongs to a built-in field; this one"
        " is named node_2",
        "function public.a_greeting": "the GraphQL entry point greeting belongs to function"
        " public.b_greeting; this one is named greeting_2",
    }


def test_what_has_no_valid_name_is_left_out() -> None:
    """Names that GraphQL can't write are omitted, and a table's relationships with them."""
    made = MadeUp()
    good = made.table("good", "id", "two words", "__x", "été")
    bad = made.table("not good", "id", "good_id")
    made.foreign_key("fk", "not good", ["good_id"], "good")
    catalog = made.catalog()
    assert bad not in catalog.base_names
    assert fields(catalog, good).columns == {"id": "id"}
    assert relationship_names(catalog, good) == []


def test_a_table_without_a_key_has_no_type() -> None:
    """It is not exposed, and takes no name away from others."""
    made = MadeUp(schemas=("public", "other"))
    made.table("account", "id", key=())
    other = made.table("account", "id", schema="other")
    assert made.catalog().base_names == {other: "account"}


def test_tables_of_one_name_in_two_schemas_both_stay() -> None:
    """The earlier schema of the search path keeps the name; the other one is put before it and reported."""
    made = MadeUp(INFLECTED, schemas=("public", "shop"))
    second = made.table("account", "id", schema="shop")
    first = made.table("Account", "id")
    catalog = made.catalog()
    assert catalog.base_names == {first: "Account", second: "shop_account"}
    (problem,) = catalog.problems
    assert problem.place == "table shop.account"
    assert problem.message == (
        "the GraphQL name account is taken by table public.Account; its type is named shop_account"
    )


def test_types_of_an_enum_give_way_to_those_of_tables() -> None:
    """The filter of an enum is renamed, not the enum; names that every schema uses are reserved."""
    made = MadeUp()
    made.table("mood", "id")
    made.table("stateList", "id")
    mood, state = made.enum("mood", "sad"), made.enum("state", "on")
    scalar = made.enum("Time", "past")
    catalog = made.catalog()
    names = [catalog.base_names[oid] for oid in (mood, state, scalar)]
    assert names == ["public_mood", "state", "public_Time"]
    assert catalog.name_of_type(state, EnumType.LIST_FILTER) == "stateListFilter_2"
    assert clashes(catalog) == {
        "enum public.mood": "the GraphQL name mood is taken by table public.mood;"
        " its type is named public_mood",
        "enum public.state": "the GraphQL name stateListFilter is taken by the Filter type of table"
        " public.stateList; its ListFilter type is named stateListFilter_2",
        "enum public.Time": "the GraphQL name Time is taken by a built-in type;"
        " its type is named public_Time",
    }


def test_a_table_keeps_its_name_beside_a_type_made_for_another_table() -> None:
    """``BlogEdge`` is the table, and the edges of ``Blog`` have another name; ``Query`` is the root."""
    made = MadeUp()
    blog = made.table("Blog", "id")
    edge = made.table("BlogEdge", "id")
    query = made.table("Query", "id")
    plain = made.table("node", "id")
    catalog = made.catalog()
    assert catalog.base_names == {blog: "Blog", edge: "BlogEdge", query: "public_Query", plain: "node"}
    assert catalog.name_of_type(blog, TableType.EDGE) == "BlogEdge_2"
    assert clashes(catalog) == {
        "table public.Blog": "the GraphQL name BlogEdge is taken by table public.BlogEdge; its Edge type is"
        " named BlogEdge_2",
        "table public.Query": "the GraphQL name Query is taken by a built-in type; its type is named"
        " public_Query",
    }


def test_an_enum_with_an_invalid_label_is_not_a_graphql_enum() -> None:
    """Unless mappings give every such label a valid one."""
    made = MadeUp()
    good = made.enum("status", "open", "closed")
    bad = made.enum("cipher", "aead-ietf", "plain")
    mapped = made.enum("mode", "aead-ietf", "plain", comment=directive(mappings={"aead-ietf": "AEAD_IETF"}))
    word = made.enum("answer", "yes", "null")
    catalog = made.catalog()
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
def test_fields_of_a_type_never_share_a_name(columns: list[str], others: list[str], inflection: bool) -> None:
    """Whatever the columns are called, every relationship has a field with a name of its own."""
    made = MadeUp(INFLECTED if inflection else None)
    made.table("a", "id", "a_id")
    table = made.table("b", "id", *columns)
    for name in columns:
        made.foreign_key(f"fk {name}", "b", [name], "a")
    if others:
        made.table("c", "id", *others)
        for name in others:
            made.foreign_key(f"fk {name}", "c", [name], "b")
    catalog = made.catalog()
    found = fields(catalog, table)
    every = ["nodeId", *found.columns.values(), *(name for _, name in found.relationships)]
    assert len(every) == len(set(every))
    assert len(found.relationships) == len(columns) + len(others)
