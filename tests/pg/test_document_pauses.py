"""The longest documents that are read, checked and compiled: all of it pauses often.

What counts is how much happens between two pauses, in calls of functions, of which a million take less than a
tenth of a second.  It may grow with the document, of which these here are a quarter.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.graphql import engine
from dataapi.graphql.limits import LONGEST_DOCUMENT
from dataapi.graphql.parsing import LONGEST_BLOCK_STRING
from dataapi.pauses import pausing
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

TOKENS = 5_000
"""A quarter of what is allowed by default."""
CALLS = 300_000
SCHEMA = """
create table person (id int primary key, name text, email text, boss_id int references person);
grant all on person to anon;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA), graphql_max_tokens=TOKENS) as service:
        yield service


def each(text: str, count: int) -> str:
    """Repeat a text with a number in it."""
    return " ".join(text.replace("<N>", str(number)) for number in range(count))


FILTER = "{ personCollection(filter: {%s}) { edges { node { id } } } }"
INSERT = "mutation { insertIntopersonCollection(objects: [%s]) { affectedCount } }"
DOCUMENTS = {
    "root fields": f"{{ {each('a<N>: personByPk(id: <N>) { id person { name } }', 330)} }}",
    "aliases": f"{{ personByPk(id: 1) {{ {each('a<N>: name', 999)} }} }}",
    "fragment": f"{{ personByPk(id: 1) {{ ...f }} }} fragment f on person {{ {each('a<N>: name', 999)} }}",
    "rows": INSERT % each('{id: <N>, name: "name <N>"}', 600),
    "different rows": INSERT % each('{id: <N>, name: "name <N>"} {id: <N>1}', 380),
    "list": FILTER % f"id: {{in: [{each('<N>', 4900)}]}}",
    "conditions": FILTER % f"or: [{each('{id: {eq: <N>}}', 540)}]",
    "nested conditions": FILTER % ("not: {" * 100 + "id: {eq: 1}" + "}" * 100),
    "long string": FILTER % f'name: {{eq: "{"x" * (LONGEST_DOCUMENT - 100)}"}}',
    "escapes": FILTER % f'name: {{eq: "{chr(92)}n{each("<N>" + chr(92) + "n", 20_000)}"}}',
    "block string": FILTER % f'name: {{eq: """{"x" * (LONGEST_BLOCK_STRING // 4)}"""}}',
    "comments": "{ __typename }" + "#\n" * 200_000,
    "lines": "{ __typename }" + "\n" * 400_000,
    "operations": each("query a<N> { ...f }", 800) + " fragment f on Query { __typename }",
    "shared fragments": each("query a<N> { ...f0 }", 300)
    + " "
    + each("fragment f<N> on Query { ...f1 ...f2 ...f3 }", 200),
    "shared variables": each("query a<N> { ...f }", 300)
    + f" fragment f on Query {{ {each('a<N>: personByPk(id: $v<N>) { id }', 250)} }}",
    "fragments": f"{{ {each('...f<N>', 130)} }} {each('fragment f<N> on Query { __typename }', 130)}",
    "variables": f"query({each('$a<N>: Int!', 600)}) {FILTER % ('id: {in: [' + each('$a<N>', 600) + ']}')}",
    "the same": f"{{ {each('personByPk(id: 1) { name }', 400)} }}",
    "unknown": f"{{ personByPk(id: 1) {{ {each('name<N>', 4900)} }} }}",
    "directives": f"{{ personByPk(id: 1) {{ name {each('@skip(if: false)', 700)} }} }}",
}


class Calls:
    """Counts calls of functions from one pause to the next.

    :ivar most: the most that there were between two.
    """

    def __init__(self) -> None:
        self.most = 0
        self._since = 0

    def pause(self) -> None:
        """Begin to count anew."""
        self.most = max(self.most, self._since)
        self._since = 0

    def count(self, _frame: Any, event: str, _argument: Any) -> None:
        """Take note of what the interpreter does."""
        if event in ("call", "c_call"):
            self._since += 1


@contextmanager
def counting() -> Iterator[Calls]:
    """Count what runs inside."""
    calls = Calls()
    sys.setprofile(calls.count)
    try:
        with pausing(calls.pause):
            yield calls
    finally:
        sys.setprofile(None)
        calls.pause()


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_little_happens_between_two_pauses(
    api: Service, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    counted = []

    async def in_turn(work: Any) -> Any:
        with counting() as calls:
            try:
                return work()
            finally:
                counted.append(calls)

    monkeypatch.setattr(engine, "in_turn", in_turn)
    await api.ask(DOCUMENTS[name], check=False)
    assert counted
    assert max(calls.most for calls in counted) <= CALLS
