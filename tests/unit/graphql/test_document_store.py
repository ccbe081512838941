"""Persisted documents: which files give which documents, and which document a request means."""

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
    [found] = read(**files).problems
    return found


def refusal(request: GraphQLRequest, documents: Documents | None, *, only: bool = False) -> tuple[Any, ...]:
    with pytest.raises(RequestRejected) as rejected:
        document_text(request, documents, only=only)
    [error] = rejected.value.errors
    assert rejected.value.stage is Stage.DOCUMENT
    return error.message, (error.extensions or {})["code"]


def test_a_file_is_known_by_its_name_and_its_hash() -> None:
    found = read(a__graphql="{ a }")
    assert found.find("a") == "{ a }"
    digest = hashlib.sha256(b"{ a }").hexdigest()
    assert found.find(digest) == found.find(f"sha256:{digest}") == "{ a }"
    assert found.find("b") is None
    assert found.problems == []


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
def test_manifests_of_the_clients_tools_are_read(manifest: Any) -> None:
    found = read(manifest__json=manifest)
    assert found.by_id == {"x": "{ a }", "y": "{ b }"}
    assert found.problems == []


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
def test_what_is_no_operation_is_left_out(content: str, expected: str) -> None:
    assert problem(broken__graphql=content).startswith(expected)


def test_a_syntax_error_names_its_place() -> None:
    assert problem(a__graphql="{\n  a(\n}").endswith(" at line 3 column 1")


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ([], "m.json: is not a manifest: "),
        ({"a": 1}, "m.json: is not a manifest: "),
        ({"operations": [{"id": "a", "body": "{ a }"}, {"id": 1}]}, "m.json: operations[1] has no id "),
        ("{", "m.json: is not JSON: "),
        ({"a": "{ a(b: \"\ud800\") }"}, "m.json: document 'a' is skipped: it contains half of a surrogate"),
        ({"sha256:0": "{ a }"}, "m.json: document 'sha256:0' is skipped: its id is not the SHA-256 of"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_manifest_is_named(manifest: Any, expected: str) -> None:
    assert problem(m__json=manifest).startswith(expected)


def test_files_that_cannot_be_read_are_named_and_leave_the_rest() -> None:
    files: list[tuple[str, bytes | OSError]] = [
        ("a.graphql", b"\xff{ a }"),
        ("b.graphql", OSError(13, "Permission denied")),
        ("c.graphql", "\ufeff{ c }".encode()),
    ]
    found = read_documents(files)
    assert found.problems == [
        "a.graphql: is not UTF-8: byte 1",
        "b.graphql: cannot be read: Permission denied",
    ]
    assert found.by_id == {"c": "{ c }"}


def test_an_id_has_one_text() -> None:
    found = read(a__graphql="{ a }", m__json={"a": "{ b }"}, n__json={"a": "{ a }"})
    assert found.find("a") == "{ a }"
    assert found.problems == ["m.json: document 'a' is skipped: another document has this id"]


def test_a_text_is_left_alone_unless_only_documents_may_run() -> None:
    request = GraphQLRequest("{ b }")
    documents = read(a__graphql="{ a }\n")
    assert document_text(request, None, only=False) == "{ b }"
    assert document_text(request, documents, only=False) == "{ b }"
    assert refusal(request, documents, only=True)[1] == "PERSISTED_DOCUMENT_REQUIRED"
    for text in ("{ a }", "{ a }\n"):
        assert document_text(GraphQLRequest(text), documents, only=True) == text


def test_without_a_folder_apollo_is_asked_to_stop_sending_hashes() -> None:
    request = GraphQLRequest(None, persisted_hash="0" * 64)
    assert refusal(request, None) == ("PersistedQueryNotSupported", "PERSISTED_QUERY_NOT_SUPPORTED")
    assert refusal(request, Documents()) == ("PersistedQueryNotFound", "PERSISTED_QUERY_NOT_FOUND")
    assert refusal(GraphQLRequest(None, document_id="a"), None)[1] == "PERSISTED_DOCUMENT_NOT_FOUND"


def test_apollos_clients_name_documents_by_hash_alone() -> None:
    assert (
        refusal(GraphQLRequest(None, persisted_hash="a"), read(a__graphql="{ a }"))[0]
        == "PersistedQueryNotFound"
    )


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.just("{ a }"), max_size=5), st.text())
def test_whatever_a_manifest_holds_each_entry_is_either_found_or_a_problem(
    manifest: dict[str, str], other: str
) -> None:
    found = read(m__json=manifest)
    assert len(found.by_id) + len(found.problems) == len(manifest)
    assert all(found.find(document_id) == manifest[document_id] for document_id in found.by_id)
    if other not in manifest:
        assert found.find(other) is None
