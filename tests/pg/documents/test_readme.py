"""The examples of README and docs/graphql.md, run on the demo's database."""

from __future__ import annotations

import io
import json
import re
import shlex
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog.directives import (
    FEATURES,
    EnumDirectives,
    ForeignKeyDirectives,
    SchemaDirectives,
    TableDirectives,
)
from dataapi.cli.main import run
from dataapi.graphql import transport
from dataapi.service.configuration import load_service
from dataapi.service.configuration.keys import PROJECT, WEBHOOKS, ConfigurationKey
from dataapi.service.demo import DemoKeys, demo_project
from dataapi.settings import Project, Settings
from support import documents
from support.memory_http import KEY
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.postgres import Server

README = documents.read("README.md")
BEYOND = documents.read("docs/graphql.md")
DEMO_SQL = documents.read("daemon/dataapi/service/demo.sql")
DIRECTIVES = {
    block.language: block.text for block in documents.blocks(documents.chapter(BEYOND, "Directives"))
}
EXAMPLES = re.findall(r"\*\*`(\w+)`\*\*[^*]*?```graphql\n(.*?)```", BEYOND, re.DOTALL)
STORED = "query ($id: Int!) { blogByPk(id: $id) { name blogPostCollection { edges { node { title } } } } }"
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
    # Subscriptions take a stream: tests/pg/live/test_clients.py runs the example of docs/live.md.
    assert {name for name, _ in EXAMPLES} == {*FEATURES} - {"jsonFilters", "subscriptions"}


def test_the_demo_has_every_feature_on() -> None:
    """The examples work on the demo as it is started."""
    assert demo_project("", DemoKeys("", "", "")).graphql_features == frozenset(FEATURES)


PROMISED: dict[str, Any] = {
    # The row is there already: it gets the new name, and stays the first account.
    "upsert": {"insertIntoAccountCollection": {"records": [{"id": 1, "lastName": "Lovelace"}]}},
    "relationFilters": {
        "accountCollection": {"edges": [{"node": {"firstName": "Bruno"}}]},
        "blogPostCollection": {
            "edges": [{"node": {"title": title}} for title in ("The dining car", "Vienna before breakfast")]
        },
    },
    # By owner from Castelli to Tanabe; of Okafor's two, the one whose best post has more claps first.
    "relationOrder": {
        "blogCollection": {
            "edges": [
                {"cursor": "…", "node": {"name": name}}
                for name in ("Night Trains", "Tides and Tables", "Small Kitchens", "Paper Gardens")
            ]
        }
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
    # Of each blog, what its released posts have; the one with 17 claps is left out.
    "groupBy": {
        "blogPostCollection": {
            "groupBy": [
                {
                    "keys": {"blogId": blog},
                    "aggregate": {"count": posts, "sum": {"claps": claps}, "countDistinct": {"title": posts}},
                }
                for blog, posts, claps in ((1, 2, "72"), (3, 2, "115"), (4, 1, "88"))
            ]
        }
    },
    "fullText": {"blogPostCollection": {"edges": [{"node": {"title": "Vienna before breakfast"}}]}},
}
"""What the demo's data give for each example; "…" is any text."""


@pytest.fixture
def fresh(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a demo's database of the test's own, in which nothing was changed yet."""
    with serving(reactor, server.create_database(DEMO_SQL), graphql_features=frozenset(FEATURES)) as service:
        yield service


@pytest.mark.parametrize(("feature", "query"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
async def test_each_example_of_a_feature_gives_what_its_text_promises(
    fresh: Service, feature: str, query: str
) -> None:
    """On the demo as it is started, and in one message to the database."""
    answer = await fresh.ask(query, role="service_role")
    assert len(answer.messages) == 1
    data = answer.data
    if feature == "relationFilters":  # the keys of posts are random, and nothing else orders them
        data["blogPostCollection"]["edges"].sort(key=lambda edge: edge["node"]["title"])
    assert documents.fits(data, PROMISED[feature]), answer.text


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
    [line] = re.findall(r"^    (DATAAPI_.*?) make demo$", README, re.MULTILINE)
    variables = dict(word.split("=", 1) for word in line.split())
    defaults = Settings(projects=(demo_project("", DemoKeys("", "", "")),))
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


async def test_the_members_of_a_request_are_those_that_are_read(demo: Service) -> None:
    """Each has its row, and the example runs the operation that it names."""
    chapter = documents.chapter(BEYOND, "Requests")
    assert re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE) == list(transport.MEMBERS)
    blocks = {block.language: block.text for block in documents.blocks(chapter)}
    [sent] = documents.requests(blocks["sh"], {"id": "$id"})  # within quotation marks of the shell
    answer = await demo.send((sent.body or "").encode())
    assert answer.body == json.loads(blocks["json"])


async def test_the_example_of_variables(demo: Service) -> None:
    """Declared otherwise than their places, and one not at all; its enum value as a string."""
    [query] = [block.text for block in documents.blocks(documents.chapter(BEYOND, "Variables"))]
    variables = {"id": 1, "words": ["The dining car"]}
    data = (await demo.ask(query, variables, role="service_role", check=False)).data
    assert data["blogByPk"]
    assert data["blogPostCollection"]["edges"] == [{"node": {"title": "The dining car"}}]


@pytest.fixture
def stored(server: Server, reactor: Any, tmp_path: Path) -> Iterator[Service]:
    """Serve the demo's database with a stored document."""
    (tmp_path / "Blog.graphql").write_text(STORED)
    cost = Project("a" * 20, "acme", "").graphql_max_cost
    database = server.create_database(DEMO_SQL)
    with serving(reactor, database, graphql_documents=tmp_path, graphql_max_cost=cost) as service:
        yield service


async def test_the_examples_of_knowing_and_limiting_what_runs(stored: Service) -> None:
    """A role's schema from the command line, and a stored document by its name, with what it costs."""
    chapter = documents.chapter(BEYOND, "Know and limit what runs")
    command, request = [block.text for block in documents.blocks(chapter) if block.language == "sh"]
    output, errors = io.StringIO(), io.StringIO()
    environ = {"DATAAPI_PROJECT_DB_URI": stored.database.uri, "DATAAPI_PROJECT_REQUIRE_API_KEY": "no"}
    words = shlex.split(command.partition(">")[0])
    assert run(words[1:], environ, output, errors) == 0, errors.getvalue()
    assert "type Blog implements Node" in output.getvalue()

    [sent] = documents.requests(request, {})
    answer = await stored.send((sent.body or "").encode())
    [shown] = re.findall(r'`"extensions":(\{"cost":.*?\}\})`', chapter)
    assert answer.body["extensions"] == json.loads(shown)


async def test_the_examples_of_the_readme_itself(demo: Service) -> None:
    """The first ones that a newcomer sees: a change by GraphQL, and related rows by REST."""
    first = re.search(r"-d '(.*?)'\n\nThe response:\n\n    (.*?)\n", README)
    assert first is not None
    answer = await demo.ask(json.loads(first[1])["query"])
    assert answer.text == first[2]

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
    assert rows.text == shown.strip()


def _blocks(chapter: str, language: str) -> list[str]:
    found = documents.blocks(documents.chapter(README, chapter))
    return [block.text for block in found if block.language == language]


@pytest.mark.parametrize("name", documents.names())
def test_links_lead_somewhere(name: str) -> None:
    """To files of the project, and to headings or anchors that are there."""
    for path, heading in LINK.findall(documents.read(name)):
        if path.startswith("https://"):
            continue
        target = (documents.ROOT / name).parent / path if path else documents.ROOT / name
        assert target.exists(), path
        if heading:
            assert heading in documents.anchors(target.read_text("utf-8")), heading


@pytest.mark.parametrize(("name", "keys"), [("docs/rest.md", PROJECT), ("docs/webhooks.md", WEBHOOKS)])
def test_the_keys_of_the_configuration_are_there(name: str, keys: Mapping[str, ConfigurationKey]) -> None:
    """The tables name keys that exist; that of webhooks names all."""
    table = documents.chapter(documents.read(name), "Configuration")
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([a-z0-9-]+)`", row)}
    assert named <= keys.keys()
    assert len(named) > 8
    if keys is WEBHOOKS:
        assert named == keys.keys()
