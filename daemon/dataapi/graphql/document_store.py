"""Persisted documents: read from a folder in a thread, and looked up by the ids that clients send.

Relay, Apollo and urql send their own ids. Appendix A of the GraphQL-over-HTTP draft uses the SHA-256 of the
text (docs/reference/graphql.md, Persisted documents).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from dataapi.graphql.transport import GraphQLRequest, RequestRejected, Stage
from dataapi.http.strict_json import INVALID_JSON

DOCUMENT, MANIFEST = ".graphql", ".json"
"""Suffixes of files with one document, and of manifests."""

HASH_PREFIX = "sha256:"

_MAX_ID = 100


@dataclass(frozen=True, slots=True)
class Documents:
    """The persisted documents of a project.

    :ivar by_id: texts by the ids in files and manifests.
    :ivar by_hash: texts by the lower-case hexadecimal SHA-256 of their UTF-8 bytes.
    :ivar texts: the texts that ``graphql-documents-only`` allows.
    :ivar problems: why files and documents were skipped, one line each.
    """

    by_id: dict[str, str] = field(default_factory=dict)
    by_hash: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def find(self, document_id: str) -> str | None:
        text = self.by_id.get(document_id)
        return text if text is not None else self.by_hash.get(document_id.removeprefix(HASH_PREFIX))


_NO_DOCUMENTS = Documents()


def document_text(request: GraphQLRequest, documents: Documents | None, *, only: bool) -> str:
    """Return the text of the requested document.

    :param documents: the persisted documents, None if no folder is configured.
    :param only: whether only persisted documents may run (``graphql-documents-only``).
    :raises RequestRejected: the document is unknown or not allowed to run. The error has a code.
    """
    persisted = documents or _NO_DOCUMENTS
    if request.query is not None:
        if only and request.query not in persisted.texts:
            raise _rejected(
                "PERSISTED_DOCUMENT_REQUIRED",
                "Only persisted documents may run: send a documentId.",
            )
        return request.query
    if request.document_id is not None:
        text = persisted.find(request.document_id)
        if text is None:
            shown = request.document_id[:_MAX_ID]
            raise _rejected("PERSISTED_DOCUMENT_NOT_FOUND", f"No document has the id {shown!r}.")
        return text
    text = persisted.by_hash.get(request.persisted_hash or "")
    if text is None and documents is None:
        # After this error, Apollo's clients send the text in every request. After PersistedQueryNotFound,
        # they repeat only this request with the text.
        raise _rejected("PERSISTED_QUERY_NOT_SUPPORTED", "PersistedQueryNotSupported")
    if text is None:
        raise _rejected("PERSISTED_QUERY_NOT_FOUND", "PersistedQueryNotFound")
    return text


def _rejected(code: str, message: str) -> RequestRejected:
    from graphql import GraphQLError  # noqa: PLC0415 - most daemons have no persisted documents

    return RequestRejected(Stage.DOCUMENT, GraphQLError(message, extensions={"code": code}))


def read_documents(files: Iterable[tuple[str, bytes | OSError]]) -> Documents:
    """Return the documents in files.

    Invalid files and documents become problems.

    :param files: contents of files by name, or the error if a file could not be read.
    """
    documents = Documents()
    for name, content in files:
        try:
            for document_id, text in _entries(name, content):
                _add(documents, name, document_id, text)
        except _InvalidDocument as error:
            documents.problems.append(f"{name}: {error}")
    return documents


class _InvalidDocument(Exception):
    """Raised for an invalid file or document."""


def _entries(name: str, content: bytes | OSError) -> Iterator[tuple[str, str]]:
    if isinstance(content, OSError):
        raise _InvalidDocument(f"cannot be read: {content.strerror or content}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _InvalidDocument(f"is not UTF-8: byte {error.start + 1}") from None
    if name.endswith(DOCUMENT):
        yield name.removesuffix(DOCUMENT), text
        return
    try:
        manifest = json.loads(text)
    except INVALID_JSON as error:
        raise _InvalidDocument(f"is not JSON: {error}") from None
    yield from _manifest(manifest)


def _manifest(manifest: Any) -> Iterator[tuple[str, str]]:
    """Yield the ids and texts of ``{id: text}`` or of Apollo's ``{"operations": [{"id", "body"}]}``."""
    match manifest:
        case {"operations": list(operations)}:
            for index, operation in enumerate(operations):
                match operation:
                    case {"id": str(document_id), "body": str(text)}:
                        yield document_id, text
                    case _:
                        raise _InvalidDocument(
                            f'operations[{index}] needs an "id" and a "body" that are strings'
                        )
        case dict() if all(isinstance(text, str) for text in manifest.values()):
            yield from manifest.items()
        case _:
            raise _InvalidDocument(
                'is not a manifest: expected {"id": "text", …} or {"operations": [{"id": …, "body": …}, …]}'
            )


def _add(documents: Documents, name: str, document_id: str, text: str) -> None:
    # Editors add a final line break that clients neither hash nor send.
    variants = {text, text.strip()}
    try:
        _check(text)
        hashes = {hashlib.sha256(variant.encode()).hexdigest(): variant for variant in variants}
        if documents.by_id.get(document_id, text) != text:
            raise _InvalidDocument("another document has this id")
        if document_id.startswith(HASH_PREFIX) and document_id.removeprefix(HASH_PREFIX) not in hashes:
            raise _InvalidDocument("its id is not the SHA-256 of its text")
    except _InvalidDocument as error:
        documents.problems.append(f"{name}: document {document_id[:_MAX_ID]!r} is skipped: {error}")
        return
    documents.by_id[document_id] = text
    documents.by_hash.update(hashes)
    documents.texts.update(variants)


def _check(text: str) -> None:
    from graphql import GraphQLError, OperationDefinitionNode, parse  # noqa: PLC0415 - as above

    try:
        text.encode()
        document = parse(text, no_location=True)
    except UnicodeEncodeError:
        raise _InvalidDocument("it contains half of a surrogate pair") from None
    except GraphQLError as error:
        location = "".join(f" at line {line} column {column}" for line, column in error.locations or ())
        raise _InvalidDocument(f"{error.message}{location}") from None
    if not any(isinstance(node, OperationDefinitionNode) for node in document.definitions):
        raise _InvalidDocument("it contains no operation")


_log = Logger(namespace="dataapi.graphql")


class DocumentFolder:
    """The folder of one project's persisted documents. ``documents`` is None if no folder is configured."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.documents = None if path is None else Documents()

    @property
    def problems(self) -> list[str]:
        return [] if self.documents is None else self.documents.problems

    async def load(self) -> None:
        """Read the folder again. If that fails, log the error and keep the previous documents."""
        if self._path is None:
            return
        try:
            self.documents = await deferToThread(read_folder, self._path)
        except OSError as error:
            _log.error("graphql-documents: {path}: {error}", path=self._path, error=error.strerror)
            return
        for problem in self.problems:
            _log.warn("graphql-documents: {path}: {problem}", path=self._path, problem=problem)


def read_folder(path: Path) -> Documents:
    """Read a folder's documents. Blocks.

    :raises OSError: the folder cannot be listed.
    """
    files = sorted(file for file in path.iterdir() if file.name.endswith((DOCUMENT, MANIFEST)))
    return read_documents((file.name, _content(file)) for file in files)


def _content(file: Path) -> bytes | OSError:
    try:
        return file.read_bytes()
    except OSError as error:
        return error
