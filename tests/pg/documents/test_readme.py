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
from dataapi.service.configuration.keys import PROJECT
from dataapi.service.demo import DemoKeys, demo_project
from dataapi.settings import Project, Settings
from support import documents
from support.memory_http import KEY
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Server

README = documents.read("README.md")
GRAPHQL_PAGE = documents.read("docs/graphql.md")
DEMO_SQL = documents.read("daemon/dataapi/service/demo.sql")
DIRECTIVES = {
    block.language: block.text for block in documents.blocks(documents.chapter(GRAPHQL_PAGE, "Directives"))
}
EXAMPLES = re.findall(r"\*\*`(\w+)`\*\*[^*]*?```graphql\n(.*?)```", GRAPHQL_PAGE, re.DOTALL)
STORED = "query ($id: Int!) { blogByPk(id: $id) { name blogPostCollection { edges { node { title } } } } }"
LINK = re.compile(r"\[[^\]]+\]\(([^)#]*)(?:#([^)]+))?\)")


@pytest.fixture(scope="module")
def demo(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database(DEMO_SQL)
    with serving(reactor, database, graphql_features=frozenset(FEATURES)) as service:
        yield service


def test_every_feature_is_documented() -> None:
    assert set(re.findall(r"^\*\*`(\w+)`\*\*", GRAPHQL_PAGE, re.MULTILINE)) == set(FEATURES)
    # tests/pg/live/test_clients.py runs the example of subscriptions, because it needs a stream.
    assert {name for name, _ in EXAMPLES} == {*FEATURES} - {"jsonFilters", "subscriptions"}


def test_demo_enables_every_feature() -> None:
    assert demo_project("", DemoKeys("", "", "")).graphql_features == frozenset(FEATURES)


EXPECTED: dict[str, Any] = {
    # The row already exists, so its name is updated.
    "upsert": {"insertIntoAccountCollection": {"records": [{"id": 1, "lastName": "Lovelace"}]}},
    "relationFilters": {
        "accountCollection": {"edges": [{"node": {"firstName": "Bruno"}}]},
        "blogPostCollection": {
            "edges": [{"node": {"title": title}} for title in ("The dining car", "Vienna before breakfast")]
        },
    },
    # Sorted by owner from Castelli to Tanabe, then by the claps of the best post.
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
    # Totals of each blog's released posts, except the post with 17 claps.
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
"""The response data of each example. "…" matches any text."""


@pytest.fixture
def fresh(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(DEMO_SQL), graphql_features=frozenset(FEATURES)) as service:
        yield service


@pytest.mark.parametrize(("feature", "query"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
async def test_examples_of_features_return_what_the_page_promises(
    fresh: Service, feature: str, query: str
) -> None:
    response = await fresh.ask(query, role="service_role")
    assert len(response.messages) == 1
    data = response.data
    if feature == "relationFilters":  # posts are sorted by random keys
        data["blogPostCollection"]["edges"].sort(key=lambda edge: edge["node"]["title"])
    assert documents.fits(data, EXPECTED[feature]), response.text


@pytest.fixture
def refined(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the demo's database with the comments from docs/graphql.md."""
    database = server.create_database(DEMO_SQL + DIRECTIVES["sql"])
    with serving(reactor, database) as service:
        yield service


async def test_example_of_directives_runs(refined: Service) -> None:
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


def test_demo_addresses_can_be_changed() -> None:
    """The README sets environment variables for ``make demo``."""
    [line] = re.findall(r"^    (DATAAPI_.*?) make demo$", README, re.MULTILINE)
    variables = dict(word.split("=", 1) for word in line.split())
    defaults = Settings(projects=(demo_project("", DemoKeys("", "", "")),))
    settings = load_service(variables, defaults=defaults)
    assert {*settings.listen, *settings.admin_listen} == {*variables.values()}


def test_every_directive_is_documented() -> None:
    chapter = documents.chapter(documents.read("docs/reference/graphql.md"), "Directives")
    keys = re.findall(r"^\| [^|]+ \| (`[^|]+) \|", chapter, re.MULTILINE)
    kinds = [SchemaDirectives, TableDirectives, ForeignKeyDirectives, EnumDirectives]
    known = {field.name for kind in kinds for field in fields(kind)} - {"features"}
    known = {name for name in known if not name.startswith("rest_")}
    documented = {
        re.sub("([A-Z])", lambda capital: f"_{capital[1].lower()}", key)
        for key in re.findall(r"`(\w+)`", " ".join(keys))
    }
    assert documented == known


async def test_members_of_requests_are_documented(demo: Service) -> None:
    chapter = documents.chapter(GRAPHQL_PAGE, "Requests")
    assert re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE) == list(transport.MEMBERS)
    blocks = {block.language: block.text for block in documents.blocks(chapter)}
    [sent] = documents.requests(blocks["sh"], {"id": "$id"})  # inside shell quotes
    response = await demo.send((sent.body or "").encode())
    assert response.body == json.loads(blocks["json"])


async def test_example_of_variables_runs(demo: Service) -> None:
    """One variable's type does not match its use, another is undeclared, and an enum value is a string."""
    [query] = [block.text for block in documents.blocks(documents.chapter(GRAPHQL_PAGE, "Variables"))]
    variables = {"id": 1, "words": ["The dining car"]}
    data = (await demo.ask(query, variables, role="service_role", check=False)).data
    assert data["blogByPk"]
    assert data["blogPostCollection"]["edges"] == [{"node": {"title": "The dining car"}}]


@pytest.fixture
def stored(server: Server, reactor: Any, tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "Blog.graphql").write_text(STORED)
    cost = Project("a" * 20, "acme", "").graphql_max_cost
    database = server.create_database(DEMO_SQL)
    with serving(reactor, database, graphql_documents=tmp_path, graphql_max_cost=cost) as service:
        yield service


async def test_examples_of_the_schema_command_and_cost_run(stored: Service) -> None:
    chapter = documents.chapter(GRAPHQL_PAGE, "Know and limit what runs")
    command, request = [block.text for block in documents.blocks(chapter) if block.language == "sh"]
    output, errors = io.StringIO(), io.StringIO()
    environ = {"DATAAPI_PROJECT_DB_URI": stored.database.uri, "DATAAPI_PROJECT_REQUIRE_API_KEY": "no"}
    words = shlex.split(command.partition(">")[0])
    assert run(words[1:], environ, output, errors) == 0, errors.getvalue()
    assert "type Blog implements Node" in output.getvalue()

    [sent] = documents.requests(request, {})
    response = await stored.send((sent.body or "").encode())
    [example] = re.findall(r'`"extensions":(\{"cost":.*?\}\})`', chapter)
    assert response.body["extensions"] == json.loads(example)


async def test_examples_of_the_readme_run(demo: Service) -> None:
    first = re.search(r"-d '(.*?)'\n\nThe response:\n\n    (.*?)\n", README)
    assert first is not None
    response = await demo.ask(json.loads(first[1])["query"])
    assert response.text == first[2]

    [mutation] = _blocks("GraphQL", "graphql")
    response = await demo.ask(mutation, role="service_role")
    assert response.data == {
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
    [example] = _blocks("REST", "json")
    assert rows.text == example.strip()


def _blocks(chapter: str, language: str) -> list[str]:
    blocks = documents.blocks(documents.chapter(README, chapter))
    return [block.text for block in blocks if block.language == language]


@pytest.mark.parametrize("name", documents.names())
def test_links_have_a_target(name: str) -> None:
    for path, heading in LINK.findall(documents.read(name)):
        if path.startswith("https://"):
            continue
        target = (documents.ROOT / name).parent / path if path else documents.ROOT / name
        assert target.exists(), path
        if heading:
            assert heading in documents.anchors(target.read_text("utf-8")), heading


def test_documented_configuration_keys_exist() -> None:
    table = documents.chapter(documents.read("docs/rest.md"), "Configuration")
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([a-z0-9-]+)`", row)}
    assert named <= PROJECT.keys()
    assert len(named) > 8
