"""The examples of README and docs/graphql.md, run on the demo's database."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog.annotations import (
    EnumDirectives,
    ForeignKeyDirectives,
    SchemaDirectives,
    TableDirectives,
)
from dataapi.catalog.directives import FEATURES
from dataapi.demo import Keys, demo_project
from dataapi.settings import Settings, load_service
from dataapi.settings.keys import PROJECT, WEBHOOKS, Key
from support import documents
from support.memory_http import KEY
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.postgres import Server

README = documents.read("README.md")
BEYOND = documents.read("docs/graphql.md")
DEMO_SQL = documents.read("daemon/dataapi/demo.sql")
DIRECTIVES = {
    block.language: block.text for block in documents.blocks(documents.chapter(BEYOND, "Directives"))
}
EXAMPLES = re.findall(r"\*\*`(\w+)`\*\*[^*]*?```graphql\n(.*?)```", BEYOND, re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]*)(?:#([^)]+))?\)")


@pytest.fixture(scope="module")
def demo(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the demo's database with every feature turned on."""
    database = server.create_database(DEMO_SQL)
    with serving(reactor, database, graphql_features=frozenset(FEATURES)) as service:
        yield service


def test_every_feature_is_documented() -> None:
    """Each feature has a paragraph; those that the demo's data can show have an example."""
    assert set(re.findall(r"^\*\*`(\w+)`\*\*", BEYOND, re.MULTILINE)) == set(FEATURES)
    assert {name for name, _ in EXAMPLES} == {*FEATURES} - {"jsonFilters"}


def test_the_demo_has_every_feature_on() -> None:
    """The examples work on the demo as it is started."""
    assert demo_project("", Keys("", "", "")).graphql_features == frozenset(FEATURES)


EXPECTED: dict[str, Any] = {
    "upsert": {"insertIntoAccountCollection": {"records": [{"id": 1, "lastName": "Lovelace"}]}},
    "relationFilters": {
        "accountCollection": {"edges": [{"node": {"firstName": "Bruno"}}]},
        "blogPostCollection": {
            "edges": [{"node": {"title": title}} for title in ("Vienna before breakfast", "The dining car")]
        },
    },
    "nestedInserts": {
        "insertIntoBlogCollection": {
            "records": [
                {
                    "name": "Slow Rivers",
                    "owner": {"firstName": "Dana"},
                    "blogPostCollection": {"totalCount": 2},
                }
            ]
        }
    },
    "fullText": {"blogPostCollection": {"edges": [{"node": {"title": "Vienna before breakfast"}}]}},
}


@pytest.mark.parametrize(("feature", "query"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
async def test_the_examples_run(demo: Service, feature: str, query: str) -> None:
    """Each example of a feature is answered, in one message, as it says."""
    answer = await demo.ask(query, role="service_role")
    assert len(answer.messages) == 1
    data = answer.data
    if feature == "relationFilters":
        data["blogPostCollection"]["edges"].sort(key=lambda edge: edge["node"]["title"], reverse=True)
    assert data == EXPECTED.get(feature, data)


@pytest.fixture
def refined(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the demo's database with the comments that docs/graphql.md shows."""
    database = server.create_database(DEMO_SQL + DIRECTIVES["sql"])
    with serving(reactor, database) as service:
        yield service


async def test_the_example_of_directives(refined: Service) -> None:
    """Names, counts and a view's keys are as the comments have them, and introspection is on."""
    assert refined.catalog.problems == ()
    journals = (await refined.data(DIRECTIVES["graphql"]))["journalCollection"]
    [journal] = [edge["node"] for edge in journals.pop("edges")]
    assert journals == {"totalCount": 1, "aggregate": {"count": 1}}
    released = [edge["node"] for edge in journal.pop("released")["edges"]]
    assert sorted(post["title"] for post in released) == ["The dining car", "Vienna before breakfast"]
    assert all(post["journal"] == {"name": "Night Trains"} for post in released)
    assert journal == {
        "name": "Night Trains",
        "about": "Across the continent, asleep",
        "author": {"firstName": "Bruno", "journals": {"totalCount": 1}},
    }
    assert await refined.data("{ __schema { queryType { name } } }") == {
        "__schema": {"queryType": {"name": "Query"}}
    }


def test_the_demo_can_listen_elsewhere() -> None:
    """The variables that the README puts before ``make demo`` are those of the two addresses."""
    [line] = re.findall(r"^`(DATAAPI_.*?)`", README, re.MULTILINE)
    variables = dict(word.split("=", 1) for word in line.split())
    defaults = Settings(projects=(demo_project("", Keys("", "", "")),))
    settings = load_service(variables, defaults=defaults)
    assert {*settings.listen, *settings.admin_listen} == {*variables.values()}


def test_every_directive_is_documented() -> None:
    """The table has the keys that are read; the features have paragraphs of their own."""
    table = documents.chapter(BEYOND, "Directives").partition("|---|")[2].partition("\n\n")[0]
    read = [SchemaDirectives, TableDirectives, ForeignKeyDirectives, EnumDirectives]
    known = {one.name for kind in read for one in fields(kind)} - {"features", "rest_max_rows"}
    told = {
        re.sub("([A-Z])", lambda capital: f"_{capital[1].lower()}", key)
        for key in re.findall(r"`(\w+)`", table)
    }
    assert told - {"true"} == known


async def test_groups_and_orders_of_the_examples(demo: Service) -> None:
    """What depends on the order in which the examples ran is looked at apart."""
    examples = dict(EXAMPLES)
    blogs = (await demo.data(examples["relationOrder"], role="service_role"))["blogCollection"]["edges"]
    names = [edge["node"]["name"] for edge in blogs if edge["node"]["name"] != "Slow Rivers"]
    assert names[0] == "Night Trains"
    assert names[-1] == "Paper Gardens"
    groups = (await demo.data(examples["groupBy"], role="service_role"))["blogPostCollection"]["groupBy"]
    assert groups == [
        {
            "keys": {"blogId": number},
            "aggregate": {"count": count, "sum": {"claps": claps}, "countDistinct": {"title": count}},
        }
        for number, count, claps in ((1, 2, "72"), (3, 2, "115"), (4, 1, "88"))
    ]


async def test_the_example_of_variables(demo: Service) -> None:
    """Declared otherwise than their places, and one not at all; its enum value as a string."""
    [query] = [block.text for block in documents.blocks(documents.chapter(BEYOND, "Variables"))]
    variables = {"id": 1, "words": ["The dining car"]}
    data = (await demo.ask(query, variables, role="service_role", check=False)).data
    assert data["blogByPk"]
    assert data["blogPostCollection"]["edges"] == [{"node": {"title": "The dining car"}}]


async def test_the_examples_of_the_readme_itself(demo: Service) -> None:
    """The first ones that a newcomer sees: a change by GraphQL, and related rows by REST."""
    [mutation] = _blocks("GraphQL", "graphql")
    answer = await demo.ask(mutation, role="service_role")
    assert answer.data == {
        "updateBlogCollection": {
            "records": [
                {"name": "Small Kitchens", "description": "Soups for one", "owner": {"firstName": "Ada"}}
            ]
        }
    }
    script = _blocks("REST", "sh")[0].partition("curl")[2]
    variables = {"REST": f"{demo.url}/rest/v1", "KEY": KEY}
    [request] = documents.requests(f"curl{script}", variables)
    rows = await demo.rest(request.method, request.target.removeprefix("/rest/v1/"), headers=request.headers)
    [shown] = _blocks("REST", "json")
    assert documents.fits(rows.body, documents.pattern(shown)), rows.text


def _blocks(chapter: str, language: str) -> list[str]:
    found = documents.blocks(documents.chapter(README, chapter))
    return [block.text for block in found if block.language == language]


@pytest.mark.parametrize("name", ["README.md", "docs/graphql.md", "docs/rest.md", "docs/webhooks.md"])
def test_links_lead_somewhere(name: str) -> None:
    """To files of the project, and to headings or anchors that are there."""
    for path, heading in LINK.findall(documents.read(name)):
        if path.startswith("https://"):
            continue
        target = (documents.ROOT / name).parent / path if path else documents.ROOT / name
        assert target.is_file(), path
        if heading:
            text = target.read_text("utf-8")
            titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in anchors or f'<a id="{heading}"></a>' in text, heading


@pytest.mark.parametrize(("name", "keys"), [("docs/rest.md", PROJECT), ("docs/webhooks.md", WEBHOOKS)])
def test_the_keys_of_the_configuration_are_there(name: str, keys: Mapping[str, Key]) -> None:
    """The tables name keys that exist; that of webhooks names all."""
    table = documents.chapter(documents.read(name), "Configuration")
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([a-z0-9-]+)`", row)}
    assert named <= keys.keys()
    assert len(named) > 8
    if keys is WEBHOOKS:
        assert named == keys.keys()
