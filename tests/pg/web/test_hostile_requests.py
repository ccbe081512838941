"""Short requests that would take a long time are rejected before they delay other requests."""

from __future__ import annotations

from typing import Any

import pytest
from dataapi.graphql import role as role_module
from dataapi.graphql.document import LONGEST_DOCUMENT
from dataapi.graphql.input_values import MAX_INPUT_OBJECTS
from support.effort import Effort
from support.service import Service

SCHEMA = """
create table person (
    id int primary key, name text, boss_id int references person, mentor_id int references person
);
insert into person values (1, 'one', 1, 1), (2, 'two', 1, 1);
grant all on all tables in schema public to anon;
"""


def doubling_fragments(depth: int) -> str:
    """Return nested fragments. Each spreads the next fragment in two fields."""
    pair = "person {{ ...f{0} }} personByboss_id {{ ...f{0} }}"
    fragments = [f"fragment f{n} on person {{ {pair.format(n + 1)} }}" for n in range(depth)]
    return f"{{ personByPk(id: 1) {{ ...f0 }} }} {' '.join(fragments)} fragment f{depth} on person {{ id }}"


async def test_exponential_fragments_are_rejected(api: Service) -> None:
    """Eighteen levels would select 500,000 objects with megabytes of SQL."""
    assert "errors" not in (await api.ask(doubling_fragments(10))).body
    effort = Effort()
    response = await api.ask(doubling_fragments(18))
    assert response.error == (
        "The operation selects more than the 3000 objects allowed, counting each fragment wherever it is "
        "spread."
    )
    assert effort.units < 100


async def test_document_length_is_limited(api: Service) -> None:
    query = '{ personCollection(filter: {name: {eq: "%s"}}) { edges { node { id } } } }'
    longest = LONGEST_DOCUMENT - len(query) + 2
    assert "errors" not in (await api.ask(query % ("x" * longest))).body
    response = await api.ask(query % ("x" * (longest + 1)))
    assert response.error == (
        "The document has 1000001 characters, more than the 1000000 allowed: send long values as variables."
    )


FILTER = "query($f: personFilter) { personCollection(filter: $f) { edges { node { id } } } }"
ORDER = "query($o: [personOrderBy!]) { personCollection(orderBy: $o) { edges { node { id } } } }"
INSERT = "mutation($o: [personInsertInput!]!) { insertIntopersonCollection(objects: $o) { affectedCount } }"


@pytest.mark.parametrize(
    ("query", "variables", "name"),
    [
        (FILTER, {"f": {"or": [{}] * MAX_INPUT_OBJECTS}}, "$f"),
        (FILTER, {"f": {"and": [{"id": {"eq": 1}}] * MAX_INPUT_OBJECTS}}, "$f"),
        (FILTER, {"f": {"or": [{"or": [{"or": [{}] * 100}] * 100}]}}, "$f"),
        (ORDER, {"o": [{}] * (MAX_INPUT_OBJECTS + 1)}, "$o"),
        (INSERT, {"o": [{"id": 5}, {"name": "x"}] * MAX_INPUT_OBJECTS}, "$o"),
        (INSERT, {"o": [{}] * (MAX_INPUT_OBJECTS + 1)}, "$o"),
    ],
    ids=["alternatives", "conditions", "nested", "order", "rows of different members", "empty rows"],
)
async def test_input_objects_in_variables_are_limited(
    api: Service, query: str, variables: Any, name: str
) -> None:
    """The daemon generates SQL for each input object, and PostgreSQL parses it."""
    response = await api.ask(query, variables)
    assert response.error == (
        f"The variable '{name}' contains too many input objects: 10000 are allowed in one request, "
        "not counting inserted rows that all have the same members."
    )
    assert "data" not in response.body


async def test_rows_with_the_same_members_do_not_count_as_objects(api: Service) -> None:
    rows = [{"id": 100 + n, "name": "x"} for n in range(MAX_INPUT_OBJECTS + 1)]
    response = await api.ask(INSERT, {"o": rows})
    assert response.data["insertIntopersonCollection"]["affectedCount"] == len(rows)
    await api.ask(
        "mutation { deleteFrompersonCollection(filter: {id: {gte: 100}}, atMost: 99999) { __typename } }"
    )


async def test_number_of_validation_errors_is_limited(api: Service) -> None:
    response = await api.ask("{ personByPk(id: 1) { " + " ".join(f"nam{n}" for n in range(4000)) + " } }")
    assert len(response.errors) == 21
    assert (
        response.errors[-1]["message"]
        == "Too many validation errors, error limit reached. Validation aborted."
    )


async def test_caches_of_documents_and_plans_are_limited(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_module, "DOCUMENT_BYTES", 200_000)
    monkeypatch.setattr(role_module, "PLAN_BYTES", 50_000)
    api.engine._roles.clear()  # a reload without changes would keep the cached roles
    role = None
    for number in range(1, 60):
        conditions = " ".join(f"{{id: {{eq: $a{number}}}}}" for _ in range(number))
        rows = f"personCollection(filter: {{or: [{conditions}]}}) {{ edges {{ cursor }} }}"
        await api.data(f"query($a{number}: Int = 1) {{ {rows} }}")
        [role] = api.engine._roles.values()
    assert role is not None
    assert 0 < role.texts.weight <= 100_000
    assert 0 < role.plans.weight <= 50_000


async def test_statements_of_uncached_documents_are_not_prepared(api: Service) -> None:
    """A document that is too long for the cache would displace a prepared statement in use."""
    padding = " " * role_module.LONGEST_CACHED
    query = "{ personCollection { edges { node { id } } } }"
    [message] = (await api.ask(query)).messages
    assert message.statements[0].statement.prepared
    [message] = (await api.ask(query + padding)).messages
    assert not message.statements[0].statement.prepared
