"""What is kept of documents: weighed by the memory that it takes, and free as soon as it is dropped."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.graphql.document import Document
from dataapi.graphql.lifting import coerce_literals, lift
from dataapi.graphql.limits import Limits
from dataapi.graphql.plan import Plan, plan_mutation, plan_query
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Server

SCHEMA = """
create table person (id int primary key, name text, email text, boss_id int references person);
grant all on person to anon;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service


def each(text: str, count: int) -> str:
    """Repeat a text with a number in it."""
    return " ".join(text.replace("<n>", str(number)) for number in range(count))


FILTER = "{ a<N>: personCollection(filter: {%s}) { edges { node { name } } } }"
NESTED = """{ a<N>: personCollection(first: 3) { edges { cursor node { name
    personCollection(first: 2) { edges { node { email person { name } } } } } }
    pageInfo { hasNextPage endCursor } } }"""
ROOT_FIELD, ALIAS = "a<N>_<n>: personByPk(id: <n>) { name person { email } }", "a<N>_<n>: name"
ROW, CONDITION, VARIABLE = '{id: <n>, name: "n"}', '{name: {eq: "<n>"}}', "$v<n>"
INSERT = "mutation m<N> { insertIntopersonCollection(objects: [%s]) { affectedCount } }"
DOCUMENTS = {
    "short": "{ personByPk(id: 5) { name_<N>: name person { email } } }",
    "nested": NESTED,
    "root fields": f"{{ {each(ROOT_FIELD, 50)} }}",
    "aliases": f"{{ personByPk(id: 1) {{ {each(ALIAS, 200)} }} }}",
    "rows": INSERT % each(ROW, 100),
    "conditions": FILTER % f"or: [{each(CONDITION, 100)}]",
    "list": FILTER % f"id: {{in: [{each('<n>', 1000)}]}}",
    "variables": f"query q<N>({each('$v<n>: Int!', 50)}) {FILTER % f'id: {{in: [{each(VARIABLE, 50)}]}}'}",
}
TEXTS = 30


def measured(make: Callable[[int], Any]) -> tuple[float, list[Any]]:
    """Make things and return how many bytes one takes, and the things."""
    make(0)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = [make(number) for number in range(1, TEXTS + 1)]
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / TEXTS, made
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_kept_is_weighed_by_its_memory(api: Service, name: str) -> None:
    """A weight is neither half nor twice as much, but for less than a kilobyte that is not worth counting."""
    schema = api.schema()
    given = {f"v{number}": number for number in range(50)}

    def document(number: int) -> Document:
        text = DOCUMENTS[name].replace("<N>", str(number))
        made = Document(text, schema, Limits(), lift(text))
        made.operation(None).coerce(given)
        return made

    taken, documents = measured(document)
    assert_weight(taken, documents[0].weight)

    def plan(number: int) -> Plan:
        made = documents[number - 1]
        operation, lifted = made.operation(None), lift(made.text)
        literals = coerce_literals(lifted, made.literal_types) if lifted else {}
        variables = {**operation.coerce(given), **(literals or {})}
        if operation.is_mutation:
            return plan_mutation(operation, schema, variables)
        return plan_query(operation, schema, variables, {}, {})

    taken, plans = measured(plan)
    assert_weight(taken, plans[0].weight)


def assert_weight(taken: float, weight: int) -> None:
    """Compare bytes with a weight."""
    assert taken / 2 - 1000 < weight < taken * 2 + 1000


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_plans_keep_no_document(api: Service, name: str) -> None:
    """Nor does anything else: a document that is forgotten is free, without the garbage collector's help."""
    await api.reload()
    given = {f"v{number}": number for number in range(50)} if name == "variables" else None
    await api.ask(DOCUMENTS[name].replace("<N>", "x"), given, check=False)
    [role] = api.engine._roles.values()
    [prepared] = [prepared for prepared, _ in role._texts._entries.values()]
    node = weakref.ref(prepared.document.operation(None).node)
    del prepared
    gc.collect()
    gc.disable()
    try:
        assert len(role.plans) == 1
        assert node() is not None
        role._texts.drop(*role._texts._entries)
        for key in list(role._documents._entries):
            role._documents.drop(key)
        assert node() is None
    finally:
        gc.enable()
