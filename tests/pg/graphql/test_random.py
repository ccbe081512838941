"""Random valid documents are each executed with one message to PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from graphql import GraphQLObjectType, get_named_type
from hypothesis import given
from hypothesis import strategies as st
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphql import GraphQLField
    from support.postgres import Server

AGGREGATES = """
comment on schema public is '@graphql({"inflect_names": true})';
comment on table track is '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
comment on table customer is '@graphql({"totalCount": {"enabled": true}, "max_rows": 3})';
"""
DEPTH = 5


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_chinook()
    database.execute(AGGREGATES)
    with serving(reactor, database, graphql_max_depth=40, graphql_max_aliases=10_000) as service:
        yield service


class Writer:
    """Generates one document, drawing each choice."""

    def __init__(self, draw: st.DrawFn, api: Service) -> None:
        self.draw = draw
        self.schema = api.schema()
        self.fragments: list[str] = []
        self.variables: dict[str, Any] = {}
        self.definitions: list[str] = []
        self.aliases = 0

    def document(self) -> str:
        query: Any = self.schema.schema.query_type
        fields = [self.field(name, field, DEPTH) for name, field in self.some(query, root=True)]
        head = f"query({', '.join(self.definitions)})" if self.definitions else "query"
        return f"{head} {{ {' '.join(fields)} }} {' '.join(self.fragments)}"

    def some(self, type_: GraphQLObjectType, *, root: bool = False) -> list[tuple[str, GraphQLField]]:
        usable = {
            name: field
            for name, field in type_.fields.items()
            if not root or name.endswith("Collection") or name == "heartbeat"
        }
        chosen = self.draw(st.lists(st.sampled_from(sorted(usable)), min_size=1, max_size=3))
        return [(name, usable[name]) for name in chosen]

    def field(self, name: str, field: GraphQLField, depth: int) -> str:
        type_ = get_named_type(field.type)
        self.aliases += 1
        text = f"a{self.aliases}: {name}{self.arguments(field)}{self.directive()}"
        if not isinstance(type_, GraphQLObjectType):
            return text
        return f"{text} {self.selection(type_, depth - 1)}"

    def selection(self, type_: GraphQLObjectType, depth: int) -> str:
        leaves = [name for name, field in type_.fields.items() if not _has_fields(field)]
        parts = ["__typename"]
        if depth > 0:
            parts += [self.field(name, field, depth) for name, field in self.some(type_)]
        elif leaves:
            parts.append(self.draw(st.sampled_from(leaves)))
        match self.draw(st.integers(0, 3)):
            case 0:
                name = f"f{len(self.fragments)}"
                self.fragments.append(f"fragment {name} on {type_.name} {{ {' '.join(parts)} }}")
                return f"{{ ...{name} {' '.join(parts[:1])} ...{name} }}"
            case 1:
                return f"{{ ... on {type_.name}{self.directive()} {{ {' '.join(parts[1:])} }} {parts[0]} }}"
            case _:
                return f"{{ {' '.join(parts)} }}"

    def arguments(self, field: GraphQLField) -> str:
        if "first" not in field.args:
            return ""
        name = self.draw(st.sampled_from(["first", "last"]))
        size = self.draw(st.integers(0, 4))
        written = f"{name}: {self.value('Int', size)}"
        if name == "first" and self.draw(st.booleans()):
            written += f", offset: {self.value('Int', self.draw(st.integers(0, 3)))}"
        if "orderBy" in field.args and self.draw(st.booleans()):
            type_: Any = get_named_type(field.args["orderBy"].type)
            column = self.draw(st.sampled_from(sorted(type_.fields)))
            written += f", orderBy: {{{column}: DescNullsLast}}"
        return f"({written})"

    def directive(self) -> str:
        if self.draw(st.integers(0, 5)):
            return ""
        word = self.draw(st.sampled_from(["include", "skip"]))
        value = self.draw(st.booleans())
        return f" @{word}(if: {self.value('Boolean', value)})"

    def value(self, kind: str, value: Any) -> str:
        if self.draw(st.booleans()):
            return str(value).lower()
        name = f"v{len(self.definitions)}"
        self.definitions.append(f"${name}: {kind}!")
        self.variables[name] = value
        return f"${name}"


def _has_fields(field: GraphQLField) -> bool:
    return isinstance(get_named_type(field.type), GraphQLObjectType)


@given(data=st.data())
async def test_random_documents_need_one_round_trip(api: Service, data: st.DataObject) -> None:
    @st.composite
    def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
        writer = Writer(draw, api)
        text = writer.document()
        return text, writer.variables

    text, variables = data.draw(documents())
    response = await api.ask(text, variables)
    assert "errors" not in response.body, response.errors
    assert len(response.messages) <= 1
    again = await api.ask(text, variables)
    if "heartbeat" not in text:
        assert again.text == response.text
