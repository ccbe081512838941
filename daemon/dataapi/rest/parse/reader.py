"""Scans a text from left to right and remembers its expectation where it failed; pure.

Errors name the farthest position that any attempt came to, as PostgREST's do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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


class Mismatch(Exception):
    """The text does not match; the reader has recorded what it expected."""


def read_with(read: Callable[[Reader], T], text: str, what: str) -> T:
    """Return the value that a function reads of a text.

    :param what: a name of the text, for the error.
    :raises ApiError: PGRST100 (400) with the column at which the text cannot be understood.
    """
    reader = Reader(text)
    try:
        return read(reader)
    except Mismatch:
        raise reader.error(what) from None


Failure = tuple[int, tuple[str, ...], str | None, bool]
"""The farthest position that an attempt came to, what was expected there, and the character that was found
(None for the end); whether an end was expected, where PostgREST shows that character in single quotes."""


class Reader:
    """A text and the current position in it.

    :ivar failure: to be restored when an alternative is tried.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.failure: Failure = (-1, (), None, False)
        self._counts: dict[str, int] = {}

    # ------------------------------------------------------------ expectations

    def missed(self, expected: str, at: int | None = None, found: int | None = None) -> None:
        """Record what was expected at a position, the current one by default.

        :param found: position of the unexpected character, if it is another one.
        """
        at = self.at if at is None else at
        far, every, unexpected, bare = self.failure
        if at > far:
            found = at if found is None else found
            self.failure = (at, (expected,), self.text[found : found + 1] or None, False)
        elif at == far and expected not in every:
            self.failure = (at, (*every, expected), unexpected, bare)

    def fail(self, expected: str, at: int | None = None) -> Mismatch:
        """Record what was expected, and return the exception to raise."""
        self.missed(expected, at)
        return Mismatch()

    def error(self, what: str) -> ApiError:
        """Return the error of the farthest failure.

        :param what: what could not be understood, such as ``filter (eqq.5)``.
        """
        far, every, unexpected, bare = self.failure
        line = self.text.count("\n", 0, far) + 1
        column = far - self.text.rfind("\n", 0, max(far, 0))
        listed = ", ".join(every[:-1])
        expected = f"{listed} or {every[-1]}" if listed else "".join(every)
        shown = END
        if unexpected is not None:
            escaped = unexpected.replace("\\", "\\\\")
            shown = f"'{escaped}'" if bare else _quoted(unexpected)
        return ApiError(
            400,
            "PGRST100",
            f'"failed to parse {what}" (line {line}, column {column})',
            details=f"unexpected {shown} expecting {expected}",
        )

    def count(self, what: str, maximum: int) -> None:
        """Count an occurrence of something, and fail at the first one beyond the limit."""
        number = self._counts[what] = self._counts.get(what, 0) + 1
        if number > maximum:
            raise self.fail(f"at most {maximum} {what}")

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

    def one_of(self, words: Iterable[str]) -> str:
        """Step over the first of the words that is next, and return it."""
        for word in words:
            if self.token(word):
                return word
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
        if self.failure[0] == self.at:
            self.failure = (*self.failure[:3], True)
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
