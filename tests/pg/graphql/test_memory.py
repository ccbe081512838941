"""Memory of cached documents: estimated correctly and freed when they are evicted."""

from __future__ import annotations

import gc
import itertools
import threading
import tracemalloc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.auth.caller import Caller
from dataapi.graphql import engine
from dataapi.graphql.document import Document, Limits
from dataapi.graphql.literal_parameters import NO_PARAMETERS, coerce_literals, extract_parameters
from dataapi.graphql.plan import OperationPlan, compile_plan
from dataapi.graphql.transport import GraphQLRequest
from dataapi.http.messages import Request
from dataapi.service.garbage_collection import FREEZE_AFTER, ShortCollections
from graphql import Node
from support.service import Service
from twisted.internet import task

if TYPE_CHECKING:
    from collections.abc import Callable


SCHEMA = """
create table person (id int primary key, name text, email text, boss_id int references person);
grant all on person to anon;
"""


def each(text: str, count: int) -> str:
    return " ".join(text.replace("<n>", str(number)) for number in range(count))


FILTER = "{ a<N>: personCollection(filter: {%s}) { edges { node { name } } } }"
NESTED = """{ a<N>: personCollection(first: 3) { edges { cursor node { name
    personCollection(first: 2) { edges { node { email person { name } } } } } }
    pageInfo { hasNextPage endCursor } } }"""
ROOT_FIELD, ALIAS = "a<N>_<n>: personByPk(id: <n>) { name person { email } }", "a<N>_<n>: name"
ROW, CONDITION, VARIABLE = '{id: <n>, name: "n"}', '{name: {eq: "<n>"}}', "$v<n>"
INSERT = "mutation m<N> { insertIntopersonCollection(objects: [%s]) { affectedCount } }"
DOCUMENTS = {
    "short": "query q<N> { personByPk(id: 5) { alias: name person { email } } }",
    "nested": NESTED,
    "root fields": f"{{ {each(ROOT_FIELD, 50)} }}",
    "aliases": f"{{ personByPk(id: 1) {{ {each(ALIAS, 200)} }} }}",
    "rows": INSERT % each(ROW, 100),
    "conditions": FILTER % f"or: [{each(CONDITION, 100)}]",
    "list": FILTER % f"id: {{in: [{each('<n>', 1000)}]}}",
    "variables": f"query q<N>({each('$v<n>: Int!', 50)}) {FILTER % f'id: {{in: [{each(VARIABLE, 50)}]}}'}",
}
TEXTS = 30
NUMBERS = itertools.count()
HTTP = Request("id", "POST", "/graphql/v1", "", {}, b"")


def measured(make: Callable[[int], Any]) -> tuple[float, list[Any]]:
    """Create objects and return the bytes per object and the objects."""
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
def test_weights_match_the_memory_of_documents_and_plans(api: Service, name: str) -> None:
    schema = api.schema()
    given = {f"v{number}": number for number in range(50)}

    def document(number: int) -> Document:
        text = DOCUMENTS[name].replace("<N>", str(number))
        made = Document(text, schema, Limits(), extract_parameters(text))
        extracted = extract_parameters(text)
        literals = coerce_literals(extracted, made.literal_types) if extracted else None
        made.operation(None).coerce(given, literals or NO_PARAMETERS)
        return made

    size, documents = measured(document)
    assert_weight(size, documents[0].weight)

    def plan(number: int) -> OperationPlan:
        made = documents[number - 1]
        operation, extracted = made.operation(None), extract_parameters(made.text)
        literals = coerce_literals(extracted, made.literal_types) if extracted else None
        return compile_plan(operation, schema, operation.coerce(given, literals or NO_PARAMETERS).input)

    size, plans = measured(plan)
    assert_weight(size, plans[0].weight)


def assert_weight(size: float, weight: int) -> None:
    assert size / 2 - 1000 < weight < size * 2 + 1000


async def forget(api: Service) -> None:
    """Change the database, so that the engine drops its schemas. Then drop all documents."""
    await api.execute(f"comment on table person is '{next(NUMBERS)}'")
    await api.ask("{ __typename }", check=False)
    [role] = api.engine._roles.values()
    role.texts.drop("{ __typename }")
    assert len(role.texts) == 0
    for key in list(role.plans._entries):
        role.plans.drop(key)


def dismantled() -> None:
    """Wait for the threads that dismantle unused schemas."""
    for thread in threading.enumerate():
        if thread.name == "schemas":
            thread.join()


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_plans_do_not_reference_documents(api: Service, name: str) -> None:
    await forget(api)
    given = {f"v{number}": number for number in range(50)} if name == "variables" else None
    await api.ask(DOCUMENTS[name].replace("<N>", "x"), given, check=False)
    [role] = api.engine._roles.values()
    [prepared] = [entry.value for entry in role.texts._entries.values()]
    node = weakref.ref(prepared.document.operation(None).node)
    del prepared
    gc.collect()
    gc.disable()
    try:
        assert len(role.plans) == 1
        assert node() is not None
        role.texts.drop(*role.texts._entries)
        for key in list(role._documents._entries):
            role._documents.drop(key)
        assert node() is None
    finally:
        gc.enable()


async def test_frozen_documents_are_freed_when_dropped(api: Service, reactor: Any) -> None:
    garbage = ShortCollections(reactor)
    garbage.start()
    try:
        for number in range(200):
            await api.ask(DOCUMENTS["short"].replace("<N>", str(number)), check=False)
            if number % 20 == 0:
                for _ in range(FREEZE_AFTER):
                    gc.collect(1)
                await task.deferLater(reactor, 0)
        [role] = api.engine._roles.values()
        nodes = [
            weakref.ref(entry.value.document.operation(None).node) for entry in role.texts._entries.values()
        ]
        assert len(nodes) >= 200
        del role
        await forget(api)
        dismantled()
        assert [node() for node in nodes if node() is not None] == []
    finally:
        garbage.stop()
        gc.unfreeze()


async def test_replaced_schema_is_freed_without_garbage_collection(api: Service) -> None:
    """Types refer to each other in cycles, and a collection that frees such cycles is slow."""
    await api.execute("""comment on schema public is '@graphql({"introspection": true})'""")
    await api.ask('{ personCollection(filter: {name: {eq: "x"}}) { edges { node { person { id } } } } }')
    await api.ask("{ __schema { types { name fields { name type { name } } } } }")
    [role] = api.engine._roles.values()
    introspected = role.introspection._schema
    assert introspected is not None
    parts: list[Any] = [role.schema, role.schema.view, role.schema.types, *role.schema.types.created()]
    parts += [role.introspection, introspected.get_type("person")]
    alive = [weakref.ref(part) for part in parts]
    gc.disable()
    try:
        del role, parts, introspected
        await forget(api)
        dismantled()
        assert [part() for part in alive if part() is not None] == []
    finally:
        gc.enable()


@pytest.mark.parametrize("at_once", [True, False], ids=["on the reactor", "in a thread"])
@pytest.mark.parametrize(
    "text",
    [
        "query q<N> { personByPk(id: 5) { alias: name person { email } } }",
        "query q<N> { ...f } fragment f on Query { personByPk(id: 5) { alias: name } }",
        "{ personByPk(id: 5) { unknown<N> } }",
        "{ personByPk(id: 5) { name<N>: ",
    ],
    ids=["valid", "fragment", "invalid", "broken off"],
)
async def test_new_documents_leave_no_garbage(
    api: Service, monkeypatch: pytest.MonkeyPatch, text: str, *, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(engine, "SHORT", 3)

    async def ask(number: int) -> None:
        request = GraphQLRequest(text.replace("<N>", str(number)), None, None)
        await api.engine.execute(request, Caller("anon", "{}"), HTTP)

    for number in range(10):
        await ask(number)
    gc.collect()
    gc.disable()
    try:
        for number in range(10, 20):
            await ask(number)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [each for each in gc.garbage if isinstance(each, Node)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
