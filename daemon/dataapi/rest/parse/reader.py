"""Scans a text from left to right and remembers what it expected where it failed; pure.

Errors name the farthest position that any attempt came to, as PostgREST's do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from dataapi.http.errors import ApiError

NAME = "field name (* or [a..z0..9_$])"
END = "end of input"
DELIMITER = "delimiter (.)"
BLANKS = " \t"
"""Characters that are allowed around tokens."""

_WORD = re.compile(r"[\w $]+")
_BLANKS = re.compile(f"[{BLANKS}]*")

T = TypeVar("T")

_Record = tuple[int, tuple[str, ...], str | None, bool]


class Mismatch(Exception):
    """The text does not match; the reader has recorded what it expected."""


def read_with(read: Callable[[Reader], T], text: str, what: str) -> T:
    """Return what a function reads of a text.

    :param what: what the text is, for the error.
    :raises ApiError: PGRST100 (400) with the column at which the text cannot be understood.
    """
    reader = Reader(text)
    try:
        return read(reader)
    except Mismatch:
        raise reader.error(what) from None


class Reader:
    """A text and the current position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._far = -1
        self._expected: tuple[str, ...] = ()
        self._unexpected: str | None = None
        self._bare = False
        self._counts: dict[str, int] = {}

    # ------------------------------------------------------------ what was expected

    def missed(self, expected: str, at: int | None = None, found: int | None = None) -> None:
        """Record what was expected at a position, the current one by default.

        :param found: position of the unexpected character, if it is another one.
        """
        at = self.at if at is None else at
        if at > self._far:
            self._far, self._expected, self._bare = at, (), False
            self._unexpected = self._character(at if found is None else found)
        if at == self._far and expected not in self._expected:
            self._expected += (expected,)

    def fail(self, expected: str, at: int | None = None) -> Mismatch:
        """Record what was expected, and return the exception to raise."""
        self.missed(expected, at)
        return Mismatch()

    @property
    def record(self) -> _Record:
        """The recorded failure, to be restored when an alternative is tried."""
        return self._far, self._expected, self._unexpected, self._bare

    @record.setter
    def record(self, record: _Record) -> None:
        self._far, self._expected, self._unexpected, self._bare = record

    @property
    def farthest(self) -> int:
        """The farthest position of a failure."""
        return self._far

    def error(self, what: str) -> ApiError:
        """Return the error of the farthest failure.

        :param what: what could not be understood, such as ``filter (eqq.5)``.
        """
        line = self.text.count("\n", 0, self._far) + 1
        column = self._far - self.text.rfind("\n", 0, max(self._far, 0))
        listed = ", ".join(self._expected[:-1])
        expected = f"{listed} or {self._expected[-1]}" if listed else "".join(self._expected)
        return ApiError(
            400,
            "PGRST100",
            f'"failed to parse {what}" (line {line}, column {column})',
            details=f"unexpected {self._shown()} expecting {expected}",
        )

    def _character(self, at: int) -> str | None:
        return self.text[at] if at < len(self.text) else None

    def _shown(self) -> str:
        if self._unexpected is None:
            return END
        escaped = self._unexpected.replace("\\", "\\\\")
        if self._bare:
            return f"'{escaped}'"
        return '"' + escaped.replace('"', '\\"') + '"'

    def count(self, what: str, most: int) -> None:
        """Count an occurrence of something, and fail at the first one beyond the limit."""
        number = self._counts[what] = self._counts.get(what, 0) + 1
        if number > most:
            raise self.fail(f"at most {most} {what}")

    # ------------------------------------------------------------ tokens

    def token(self, token: str, label: str | None = None) -> bool:
        """Step over the token when it is next."""
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        found = self.at
        for character in token:
            if not self.text.startswith(character, found):
                break
            found += 1
        self.missed(label or _quoted(token), found=found)
        return False

    def need(self, token: str, label: str | None = None) -> None:
        """Step over the token, which must be next."""
        if not self.token(token, label):
            raise Mismatch

    def lexeme(self, token: str) -> bool:
        """Step over the token and the blanks around it when it is next."""
        start = self.at
        self.blanks()
        if self.token(token):
            self.blanks()
            return True
        self.at = start
        return False

    def blanks(self) -> None:
        """Step over blanks."""
        found = _BLANKS.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def ends(self, *tokens: str) -> bool:
        """Return whether one of the tokens, or the end, is next."""
        for token in tokens:
            if self.text.startswith(token, self.at):
                return True
            self.missed(_quoted(token))
        if self.at == len(self.text):
            return True
        self.missed(END)
        self._bare = self._bare or self._far == self.at
        return False

    def need_end(self, *tokens: str) -> None:
        """Fail unless one of the tokens, or the end, is next."""
        if not self.ends(*tokens):
            raise Mismatch

    # ------------------------------------------------------------ names

    def name(self) -> str:
        """Read a name: bare, with blanks within it, or anything in double quotes."""
        if self.text.startswith('"', self.at):
            return self.quoted()
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise self.fail(NAME)
        start = self.at
        self._step(found)
        while self._dash():
            found = _WORD.match(self.text, self.at)
            if found is None:
                self.missed("letter")
                raise self.fail("digit")
            self._step(found)
        name = self.text[start : self.at].strip()
        if not name:
            raise self.fail(NAME, start)
        return name

    def word(self) -> str:
        """Read an identifier that is never quoted, such as a type's name."""
        found = _WORD.match(self.text, self.at)
        if found is None:
            self.missed("letter")
            raise self.fail("digit")
        self._step(found)
        return found[0].strip()

    def _step(self, found: re.Match[str]) -> None:
        self.at = found.end()
        self.missed("letter")
        self.missed("digit")

    def _dash(self) -> bool:
        """Step over a dash that belongs to a name, and is not the beginning of an arrow."""
        if self.text.startswith("->", self.at):
            return False
        return self.token("-")

    def quoted(self) -> str:
        """Read a text in double quotes; a backslash escapes the next character."""
        self.need('"')
        characters: list[str] = []
        while not self.text.startswith('"', self.at):
            if self.text.startswith("\\", self.at):
                self.at += 1
            if self.at >= len(self.text):
                raise self.fail(_quoted('"'))
            characters.append(self.text[self.at])
            self.at += 1
        self.at += 1
        return "".join(characters)


def _quoted(token: str) -> str:
    return '"' + token.replace("\\", "\\\\").replace('"', '\\"') + '"'
