"""Persisted documents: read from a folder in a thread, and found by the ids that clients send.

Ids are those that Relay, Apollo and urql send, and the SHA-256 of the text, as appendix A of
the GraphQL-over-HTTP draft asks (docs/reference/graphql.md, Persisted documents).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphql import GraphQLError, OperationDefinitionNode, parse
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from dataapi.graphql.transport import GraphQLRequest, RequestRejected, Stage
from dataapi.http.strict_json import INVALID_JSON

DOCUMENT, MANIFEST = ".graphql", ".json"
"""Suffixes of files with one document, and with many documents by their ids."""

HASH_PREFIX = "sha256:"

_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a folder.

    :ivar by_id: texts by their ids in files and manifests.
    :ivar by_hash: texts by the SHA-256 of their UTF-8 form, in lower-case hexadecimal.
    :ivar texts: the texts that may run when nothing else may.
    :ivar problems: why files and documents are left out, one line each.
    """

    by_id: dict[str, str] = field(default_factory=dict)
    by_hash: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def find(self, document_id: str) -> str | None:
        """Return the text with an id: one of a file or manifest, or the hash with or without its prefix."""
        text = self.by_id.get(document_id)
        return text if text is not None else self.by_hash.get(document_id.removeprefix(HASH_PREFIX))


_NO_DOCUMENTS = Documents()


def document_text(request: GraphQLRequest, documents: Documents | None, *, only: bool) -> str:
    """Return the text of the document that a request is for.

    :param documents: None when no folder is configured.
    :param only: whether nothing but those documents may run (``graphql-documents-only``).
    :raises RequestRejected: at the document stage, with a code.
    """
    persisted = documents or _NO_DOCUMENTS
    if request.query is not None:
        if only and request.query not in persisted.texts:
            raise _rejected(
                "PERSISTED_DOCUMENT_REQUIRED",
                "Only documents that this server keeps may run: send the documentId of one.",
            )
        return request.query
    if request.document_id is not None:
        text = persisted.find(request.document_id)
        if text is None:
            shown = request.document_id[:_SHOWN]
            raise _rejected("PERSISTED_DOCUMENT_NOT_FOUND", f"No document has the id {shown!r}.")
        return text
    text = persisted.by_hash.get(request.persisted_hash or "")
    if text is None and documents is None:
        # Apollo's words for "send the whole text, always" and, below, "send it this time".
        raise _rejected("PERSISTED_QUERY_NOT_SUPPORTED", "PersistedQueryNotSupported")
    if text is None:
        raise _rejected("PERSISTED_QUERY_NOT_FOUND", "PersistedQueryNotFound")
    return text


def _rejected(code: str, message: str) -> RequestRejected:
    return RequestRejected(Stage.DOCUMENT, GraphQLError(message, extensions={"code": code}))


def read_documents(files: Iterable[tuple[str, bytes | OSError]]) -> Documents:
    """Read the files of a folder.

    What cannot be used is left out with a problem that names the file.

    :param files: names with contents, or with why they cannot be read.
    """
    found = Documents()
    for name, content in files:
        try:
            for document_id, text in _entries(name, content):
                _add(found, name, document_id, text)
        except _Unusable as error:
            found.problems.append(f"{name}: {error}")
    return found


class _Unusable(Exception):
    """A file or document is left out; the text says why."""


def _entries(name: str, content: bytes | OSError) -> Iterator[tuple[str, str]]:
    """Yield the ids and texts of a file."""
    if isinstance(content, OSError):
        raise _Unusable(f"cannot be read: {content.strerror or content}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Unusable(f"is not UTF-8: byte {error.start + 1}") from None
    if name.endswith(DOCUMENT):
        yield name.removesuffix(DOCUMENT), text
        return
    try:
        manifest = json.loads(text)
    except INVALID_JSON as error:
        raise _Unusable(f"is not JSON: {error}") from None
    yield from _manifest(manifest)


def _manifest(manifest: Any) -> Iterator[tuple[str, str]]:
    """Yield what a manifest holds: ``{id: text}``, or Apollo's ``{"operations": [{"id", "body"}]}``."""
    match manifest:
        case {"operations": list(operations)}:
            for place, operation in enumerate(operations):
                match operation:
                    case {"id": str(document_id), "body": str(text)}:
                        yield document_id, text
                    case _:
                        raise _Unusable(f"operations[{place}] has no id and body that are strings")
        case dict() if all(isinstance(text, str) for text in manifest.values()):
            yield from manifest.items()
        case _:
            raise _Unusable(
                'is not a manifest: expected {"id": "text", …} or {"operations": [{"id": …, "body": …}, …]}'
            )


def _add(found: Documents, name: str, document_id: str, text: str) -> None:
    """Add a document under its id and its hashes, or a problem."""
    # An editor ends a file with a line end, which is not part of what a client hashes or sends.
    variants = {text, text.strip()}
    try:
        _check(text)
        hashes = {hashlib.sha256(variant.encode()).hexdigest(): variant for variant in variants}
        if found.by_id.get(document_id, text) != text:
            raise _Unusable("another document has that id")
        if document_id.startswith(HASH_PREFIX) and document_id.removeprefix(HASH_PREFIX) not in hashes:
            raise _Unusable("that is not the SHA-256 of its text")
    except _Unusable as error:
        found.problems.append(f"{name}: document {document_id[:_SHOWN]!r} is left out: {error}")
        return
    found.by_id[document_id] = text
    found.by_hash.update(hashes)
    found.texts.update(variants)


def _check(text: str) -> None:
    """See that a text is an executable document; raises ``_Unusable``."""
    try:
        text.encode()
        document = parse(text, no_location=True)
    except UnicodeEncodeError:
        raise _Unusable("it holds half of a surrogate pair") from None
    except GraphQLError as error:
        place = "".join(f" at line {line} column {column}" for line, column in error.locations or ())
        raise _Unusable(f"{error.message}{place}") from None
    if not any(isinstance(node, OperationDefinitionNode) for node in document.definitions):
        raise _Unusable("it holds no operation")


_log = Logger(namespace="dataapi.graphql")


class DocumentFolder:
    """The persisted documents of one project.

    :param path: None when the project has no such folder.
    :ivar documents: what was read last, None when there is no folder.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.documents = None if path is None else Documents()

    @property
    def problems(self) -> list[str]:
        """Why files and documents of the folder are left out, one line each."""
        return [] if self.documents is None else self.documents.problems

    async def load(self) -> None:
        """Read the folder again; if that fails, log why and go on with the documents read before."""
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
    """Read a folder's documents; blocks.

    :raises OSError: the folder cannot be listed.
    """
    files = sorted(file for file in path.iterdir() if file.name.endswith((DOCUMENT, MANIFEST)))
    return read_documents((file.name, _content(file)) for file in files)


def _content(file: Path) -> bytes | OSError:
    try:
        return file.read_bytes()
    except OSError as error:
        return error
