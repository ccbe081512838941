"""Persisted documents: reading their files, and finding the document of a request."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from dataapi.graphql.document_store import Documents, document_text, read_documents
from dataapi.graphql.transport import GraphQLRequest, RequestRejected, Stage
from hypothesis import given
from hypothesis import strategies as st


def read(**files: Any) -> Documents:
    contents = {name.replace("__", "."): value for name, value in files.items()}
    return read_documents(
        (name, (value if isinstance(value, str) else json.dumps(value)).encode())
        for name, value in contents.items()
    )


def problem(**files: Any) -> str:
    [only] = read(**files).problems
    return only


def rejection(request: GraphQLRequest, documents: Documents | None, *, only: bool = False) -> tuple[Any, ...]:
    with pytest.raises(RequestRejected) as rejected:
        document_text(request, documents, only=only)
    [error] = rejected.value.errors
    assert rejected.value.stage is Stage.DOCUMENT
    return error.message, (error.extensions or {})["code"]


def test_document_is_found_by_file_name_and_by_hash() -> None:
    documents = read(a__graphql="{ a }")
    assert documents.find("a") == "{ a }"
    digest = hashlib.sha256(b"{ a }").hexdigest()
    assert documents.find(digest) == documents.find(f"sha256:{digest}") == "{ a }"
    assert documents.find("b") is None
    assert documents.problems == []


@pytest.mark.parametrize(
    "manifest",
    [
        {"x": "{ a }", "y": "{ b }"},
        {
            "format": "apollo-persisted-query-manifest",
            "version": 1,
            "operations": [
                {"id": "x", "name": "A", "type": "query", "body": "{ a }"},
                {"id": "y", "name": "B", "type": "query", "body": "{ b }"},
            ],
        },
    ],
    ids=["Relay and urql", "Apollo"],
)
def test_manifests_of_client_tools_are_read(manifest: Any) -> None:
    documents = read(manifest__json=manifest)
    assert documents.by_id == {"x": "{ a }", "y": "{ b }"}
    assert documents.problems == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{ a", "broken.graphql: document 'broken' is skipped: Syntax Error: Expected Name, found <EOF>."),
        ("type A { b: C }", "broken.graphql: document 'broken' is skipped: it contains no operation"),
        ("fragment A on B { c }", "broken.graphql: document 'broken' is skipped: it contains no operation"),
        (
            "{a" * 5000,
            "broken.graphql: document 'broken' is skipped: Syntax Error: Document is nested too deeply",
        ),
    ],
)
def test_files_without_an_operation_are_skipped(content: str, expected: str) -> None:
    assert problem(broken__graphql=content).startswith(expected)


def test_syntax_error_contains_its_position() -> None:
    assert problem(a__graphql="{\n  a(\n}").endswith(" at line 3 column 1")


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ([], "m.json: is not a manifest: "),
        ({"a": 1}, "m.json: is not a manifest: "),
        ({"operations": [{"id": "a", "body": "{ a }"}, {"id": 1}]}, 'm.json: operations[1] needs an "id" '),
        ("{", "m.json: is not JSON: "),
        ({"a": "{ a(b: \"\ud800\") }"}, "m.json: document 'a' is skipped: it contains half of a surrogate"),
        ({"sha256:0": "{ a }"}, "m.json: document 'sha256:0' is skipped: its id is not the SHA-256 of"),
    ],
)  # fmt: skip
def test_invalid_manifest_is_explained(manifest: Any, expected: str) -> None:
    assert problem(m__json=manifest).startswith(expected)


def test_unreadable_files_are_reported_and_skipped() -> None:
    files: list[tuple[str, bytes | OSError]] = [
        ("a.graphql", b"\xff{ a }"),
        ("b.graphql", OSError(13, "Permission denied")),
        ("c.graphql", "\ufeff{ c }".encode()),
    ]
    documents = read_documents(files)
    assert documents.problems == [
        "a.graphql: is not UTF-8: byte 1",
        "b.graphql: cannot be read: Permission denied",
    ]
    assert documents.by_id == {"c": "{ c }"}


def test_duplicate_id_is_reported() -> None:
    documents = read(a__graphql="{ a }", m__json={"a": "{ b }"}, n__json={"a": "{ a }"})
    assert documents.find("a") == "{ a }"
    assert documents.problems == ["m.json: document 'a' is skipped: another document has this id"]


def test_query_text_is_allowed_unless_only_documents_may_run() -> None:
    request = GraphQLRequest("{ b }")
    documents = read(a__graphql="{ a }\n")
    assert document_text(request, None, only=False) == "{ b }"
    assert document_text(request, documents, only=False) == "{ b }"
    assert rejection(request, documents, only=True)[1] == "PERSISTED_DOCUMENT_REQUIRED"
    for text in ("{ a }", "{ a }\n"):
        assert document_text(GraphQLRequest(text), documents, only=True) == text


def test_apollo_hashes_are_not_supported_without_a_folder() -> None:
    request = GraphQLRequest(None, persisted_hash="0" * 64)
    assert rejection(request, None) == ("PersistedQueryNotSupported", "PERSISTED_QUERY_NOT_SUPPORTED")
    assert rejection(request, Documents()) == ("PersistedQueryNotFound", "PERSISTED_QUERY_NOT_FOUND")
    assert rejection(GraphQLRequest(None, document_id="a"), None)[1] == "PERSISTED_DOCUMENT_NOT_FOUND"


def test_apollo_clients_identify_documents_only_by_hash() -> None:
    assert (
        rejection(GraphQLRequest(None, persisted_hash="a"), read(a__graphql="{ a }"))[0]
        == "PersistedQueryNotFound"
    )


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.just("{ a }"), max_size=5), st.text())
def test_each_manifest_entry_is_found_or_reported(manifest: dict[str, str], other: str) -> None:
    documents = read(m__json=manifest)
    assert len(documents.by_id) + len(documents.problems) == len(manifest)
    assert all(documents.find(document_id) == manifest[document_id] for document_id in documents.by_id)
    if other not in manifest:
        assert documents.find(other) is None
