"""The folder of persisted documents: read in a thread, and kept until it is read again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from dataapi.graphql.persisted import DOCUMENT, MANIFEST, Documents, read_documents

_log = Logger(namespace="dataapi.graphql")

_NAP = 0.0002
"""Seconds that the reading thread lets others run after each document (see ``catalog.reflect``)."""


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
        """What of the folder could not be used."""
        return [] if self.documents is None else self.documents.problems

    async def load(self) -> None:
        """Read the folder again; when that is impossible, keep what there is and log why."""
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
    names = sorted(entry.name for entry in path.iterdir() if entry.name.endswith((DOCUMENT, MANIFEST)))
    return read_documents(_contents(path, names), lambda: time.sleep(_NAP))


def _contents(path: Path, names: list[str]) -> Iterator[tuple[str, bytes | OSError]]:
    for name in names:
        try:
            yield name, (path / name).read_bytes()
        except OSError as error:
            yield name, error
