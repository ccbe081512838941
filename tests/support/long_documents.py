"""GraphQL documents that take as long to parse, validate or compile as the limits allow."""

from __future__ import annotations

from dataapi.graphql.document import LONGEST_DOCUMENT
from dataapi.graphql.graphql_core import LONGEST_BLOCK_STRING

TABLES = """
create table person (id int primary key, name text, email text, boss_id int references person);
grant all on person to anon;
"""
"""Tables for the documents."""


def each(text: str, count: int) -> str:
    """Repeat a template, and replace ``<N>`` with the number of each copy."""
    return " ".join(text.replace("<N>", str(number)) for number in range(count))


FILTER = "{ personCollection(filter: {%s}) { edges { node { id } } } }"
INSERT = "mutation { insertIntopersonCollection(objects: [%s]) { affectedCount } }"
BACKSLASH = chr(92)


def documents(tokens: int) -> dict[str, str]:
    """Return documents of up to this many tokens, by topic."""

    def many(text: str, tokens_each: int, maximum: int = tokens) -> str:
        return each(text, min(tokens // tokens_each - 10, maximum))

    fields = many("a<N>: personByPk(id: <N>) { id person { name } }", 15, 999)
    aliases = many("a<N>: name", 5, 999)
    listed = many("$a<N>", 8)
    return {
        "root fields": f"{{ {fields} }}",
        "aliases": f"{{ personByPk(id: 1) {{ {aliases} }} }}",
        "fragment": f"{{ personByPk(id: 1) {{ ...f }} }} fragment f on person {{ {aliases} }}",
        "rows": INSERT % many('{id: <N>, name: "name <N>"}', 8),
        "different rows": INSERT % many('{id: <N>, name: "name <N>"} {id: 1<N>}', 13),
        "list": FILTER % f"id: {{in: [{many('<N>', 1, tokens - 40)}]}}",
        "conditions": FILTER % f"or: [{many('{id: {eq: <N>}}', 9)}]",
        "nested conditions": FILTER % ("not: {" * 100 + "id: {eq: 1}" + "}" * 100),
        "long string": FILTER % f'name: {{eq: "{"x" * (LONGEST_DOCUMENT - 100)}"}}',
        "escapes": FILTER % f'name: {{eq: "{each("<N>" + BACKSLASH + "n", 4 * tokens)}"}}',
        "block string": FILTER % f'name: {{eq: """{"x" * (LONGEST_BLOCK_STRING * tokens // 20_000 - 9)}"""}}',
        "comments": "{ __typename }" + "#\n" * 200_000,
        "lines": "{ __typename }" + "\n" * 400_000,
        "operations": many("query a<N> { ...f }", 7) + " fragment f on Query { __typename }",
        "shared fragments": f"{many('query a<N> { ...f0 }', 14)} "
        + many("fragment f<N> on Query { ...f1 ...f2 ...f3 }", 24),
        "shared variables": many("query a<N> { ...f }", 14)
        + f" fragment f on Query {{ {many('a<N>: personByPk(id: $v<N>) { id }', 24)} }}",
        "fragments": f"{{ {each('...f<N>', 130)} }} {each('fragment f<N> on Query { __typename }', 130)}",
        "variables": f"query({many('$a<N>: Int!', 8)}) {FILTER % f'id: {{in: [{listed}]}}'}",
        "the same": f"{{ {many('personByPk(id: 1) { name }', 10)} }}",
        "unknown": f"{{ personByPk(id: 1) {{ {many('name<N>', 1, 5_000)} }} }}",
        "directives": f"{{ personByPk(id: 1) {{ name {many('@skip(if: false)', 7)} }} }}",
    }
