"""OpenAPI descriptions are valid for any names and comments."""

from __future__ import annotations

import json
from typing import Any

from dataapi.http.messages import Request
from dataapi.rest.openapi.description import Version, describe, with_address
from dataapi.rest.openapi.model import Note, encode, members
from dataapi.settings import Project
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV31SpecValidator
from support.catalog import MadeUp

PROJECT = Project("a" * 20, "acme", "", openapi_mode="ignore-privileges")
VALIDATORS = {Version.SWAGGER: OpenAPIV2SpecValidator, Version.OPENAPI: OpenAPIV31SpecValidator}

letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
names = st.one_of(
    st.text(letters, min_size=1, max_size=8),
    st.text("a/~%{}?#. \"'", min_size=1, max_size=6),
    st.sampled_from(["select", "order", "and", "Error", "a", "a_2", "$ref", "a.insert", "properties"]),
)
tables = st.lists(
    st.tuples(names, st.lists(names, min_size=1, max_size=4, unique=True), st.text(letters, max_size=20)),
    max_size=4,
    unique_by=lambda table: table[0],
)


def description(builder: MadeUp, version: Version, host: str = "localhost:8000") -> dict[str, Any]:
    body = describe(PROJECT, builder.catalog(), "anon", "public", version, lambda: None)
    request = Request("1", "GET", "/rest/v1/", "", {"host": host}, b"")
    document: dict[str, Any] = json.loads(with_address(PROJECT, request, version, body))
    return document


@given(tables=tables, version=st.sampled_from(Version))
def test_description_is_valid_for_any_names_and_comments(
    tables: list[tuple[str, list[str], str]], version: Version
) -> None:
    builder = MadeUp()
    for name, columns, comment in tables:
        builder.table(name, *columns, key=columns[:1], comment=comment)
    document = description(builder, version)
    assert [error.message for error in VALIDATORS[version](document).iter_errors()] == []
    assert len(document["paths"]) == len(tables) + 1
    if version is Version.SWAGGER:
        rows = [document["definitions"][name]["properties"] for name, _, _ in tables]
    else:
        paths = [path for path in document["paths"].values() if "post" in path]
        contents = [path["get"]["responses"]["200"]["content"]["application/json"] for path in paths]
        references = [content["schema"]["items"]["$ref"].rpartition("/")[2] for content in contents]
        rows = [document["components"]["schemas"][name]["properties"] for name in references]
    assert [list(row) for row in rows] == [columns for _, columns, _ in tables]


@given(host=st.text(max_size=20))
def test_invalid_host_is_omitted(host: str) -> None:
    document = description(MadeUp(), Version.SWAGGER, host)
    assert document.get("host", host) == host
    assert document["basePath"] == "/rest/v1"
    OpenAPIV2SpecValidator(document).validate()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(value=st.dictionaries(st.text(), st.dictionaries(st.text(), plain, max_size=3), max_size=3))
def test_document_encoded_in_pieces_is_complete(value: dict[str, dict[str, Any]]) -> None:
    pauses: list[None] = []
    pieces = members(**{name: members(**part) for name, part in value.items()})
    assert json.loads(encode(pieces, lambda: pauses.append(None))) == value
    assert len(pauses) == len(value) + sum(map(len, value.values()))


def test_notes_are_not_encoded() -> None:
    schema = {"type": "string", Note.TYPE: "text", "properties": {"TYPE": {Note.DEFAULT: object()}}}
    encoded = encode(members(schema=schema), lambda: None)
    assert json.loads(encoded) == {"schema": {"type": "string", "properties": {"TYPE": {}}}}
