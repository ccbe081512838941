"""A backtracking parser. Like PostgREST's, it reports the farthest position that it reached."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from dataapi.http.errors import ApiError

NAME = "field name (* or [a..z0..9_$])"
END = "end of input"
DELIMITER = "delimiter (.)"
BLANKS = " \t"

_WORD = re.compile(r"[\w $]+")
_BLANKS = re.compile(f"[{BLANKS}]*")

T = TypeVar("T")


class Mismatch(Exception):
    """Raised when the text does not match. The ``Reader`` has recorded what was expected."""


def read_with(read: Callable[[Reader], T], text: str, subject: str) -> T:
    """Parse ``text`` with the function ``read``. ``subject`` describes the text in errors.

    :raises ApiError: PGRST100 (400) with the column of the syntax error.
    """
    reader = Reader(text)
    try:
        return read(reader)
    except Mismatch:
        raise reader.error(subject) from None


Failure = tuple[int, tuple[str, ...], str | None, bool]
"""Farthest position, expected tokens, unexpected character or None, and whether the end was expected.

If the end was expected, PostgREST quotes the character with single quotes.
"""


class Reader:
    """A text and the current position in it.

    :ivar failure: the farthest failure. Restore the previous value to ignore a failed alternative.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.failure: Failure = (-1, (), None, False)
        self._counts: dict[str, int] = {}

    # ------------------------------------------------------------ expectations

    def note_expected(self, expected: str, at: int | None = None, unexpected_at: int | None = None) -> None:
        """Record what was expected at a position (default: the current one).

        :param unexpected_at: position of the unexpected character, if different.
        """
        at = self.at if at is None else at
        farthest, expectations, unexpected, bare = self.failure
        if at > farthest:
            unexpected_at = at if unexpected_at is None else unexpected_at
            self.failure = (at, (expected,), self.text[unexpected_at : unexpected_at + 1] or None, False)
        elif at == farthest and expected not in expectations:
            self.failure = (at, (*expectations, expected), unexpected, bare)

    def fail(self, expected: str, at: int | None = None) -> Mismatch:
        self.note_expected(expected, at)
        return Mismatch()

    def error(self, subject: str) -> ApiError:
        farthest, expectations, unexpected, bare = self.failure
        line = self.text.count("\n", 0, farthest) + 1
        column = farthest - self.text.rfind("\n", 0, max(farthest, 0))
        listed = ", ".join(expectations[:-1])
        expected = f"{listed} or {expectations[-1]}" if listed else "".join(expectations)
        unexpected_text = END
        if unexpected is not None:
            escaped = unexpected.replace("\\", "\\\\")
            unexpected_text = f"'{escaped}'" if bare else _quoted(unexpected)
        return ApiError(
            400,
            "PGRST100",
            f'"failed to parse {subject}" (line {line}, column {column})',
            details=f"unexpected {unexpected_text} expecting {expected}",
        )

    def count(self, noun: str, maximum: int) -> None:
        number = self._counts[noun] = self._counts.get(noun, 0) + 1
        if number > maximum:
            raise self.fail(f"at most {maximum} {noun}")

    # ------------------------------------------------------------ tokens

    def token(self, token: str, label: str | None = None) -> bool:
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        end = self.at
        for character in token:
            if not self.text.startswith(character, end):
                break
            end += 1
        self.note_expected(label or _quoted(token), unexpected_at=end)
        return False

    def require(self, token: str, label: str | None = None) -> None:
        if not self.token(token, label):
            raise Mismatch

    def one_of(self, words: Iterable[str]) -> str:
        for word in words:
            if self.token(word):
                return word
        raise Mismatch

    def lexeme(self, token: str) -> bool:
        start = self.at
        self.blanks()
        if self.token(token):
            self.blanks()
            return True
        self.at = start
        return False

    def blanks(self) -> None:
        match = _BLANKS.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def at_end(self, *tokens: str) -> bool:
        for token in tokens:
            if self.text.startswith(token, self.at):
                return True
            self.note_expected(_quoted(token))
        if self.at == len(self.text):
            return True
        self.note_expected(END)
        if self.failure[0] == self.at:
            self.failure = (*self.failure[:3], True)
        return False

    def require_end(self, *tokens: str) -> None:
        if not self.at_end(*tokens):
            raise Mismatch

    # ------------------------------------------------------------ names

    def name(self) -> str:
        if self.text.startswith('"', self.at):
            return self.quoted()
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise self.fail(NAME)
        start = self.at
        self._step(match)
        while self._dash():
            match = _WORD.match(self.text, self.at)
            if match is None:
                self.note_expected("letter")
                raise self.fail("digit")
            self._step(match)
        name = self.text[start : self.at].strip()
        if not name:
            raise self.fail(NAME, start)
        return name

    def word(self) -> str:
        match = _WORD.match(self.text, self.at)
        if match is None:
            self.note_expected("letter")
            raise self.fail("digit")
        self._step(match)
        return match[0].strip()

    def _step(self, match: re.Match[str]) -> None:
        self.at = match.end()
        self.note_expected("letter")
        self.note_expected("digit")

    def _dash(self) -> bool:
        if self.text.startswith("->", self.at):
            return False
        return self.token("-")

    def quoted(self) -> str:
        self.require('"')
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
