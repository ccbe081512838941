"""What is measured: one case a row of the table."""

from __future__ import annotations

import json
from dataclasses import dataclass

NUMBER = "<N>"
"""Stands in a request for a number that is another one in each request."""

SETUP = """comment on schema public is '@graphql({"inflect_names": true, "max_rows": 1000})'"""
"""What the sample database needs beside its rows."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of request.

    :ivar path: path and query string of the URL.
    :ivar body: the POSTed body, None for a GET; this and the path may hold ``NUMBER``.
    :ivar most: the numbers go from 1 to this one and begin anew.
    """

    name: str
    path: str
    body: str | None = None
    most: int = 1

    def numbered(self, number: int) -> tuple[str, str | None]:
        """Return path and body of a request with its number."""
        text = str(number)
        return self.path.replace(NUMBER, text), self.body and self.body.replace(NUMBER, text)


def graphql(name: str, document: str, variables: str = "{}", most: int = 1) -> Case:
    """Return the case of a GraphQL document; ``variables`` is JSON, but for ``NUMBER``."""
    return Case(name, "/graphql/v1", f'{{"query":{json.dumps(document)},"variables":{variables}}}', most)


LOOKUP = "query ($id: Int!) { trackByPk(trackId: $id) { name album { title } } }"
COLD = "{ trackByPk(trackId: 5) { name_<N>: name album { title } } }"
NESTED = """{ albumCollection(first: 10) { edges { node { title
    trackCollection(first: 10) { edges { node { name milliseconds } } } } } } }"""
PAGE = "{ trackCollection(first: 1000) { edges { node { trackId name milliseconds unitPrice } } } }"
REST = "/rest/v1/track?select=track_id,name,album(title)&order=track_id.desc&limit=10"

CASES = (
    graphql("primary key, one nested object", LOOKUP, '{"id":<N>}', most=3503),
    graphql("10 x 10 nested list", NESTED),
    graphql("page of 1,000 rows", PAGE),
    graphql("cold document each time", COLD, most=10**9),
    Case("REST read of 10 rows", REST),
)
