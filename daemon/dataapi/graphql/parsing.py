"""The text of a document to its tree, and a tree's types, with pauses.

graphql-core reads a text character by character; here regular expressions take what is long.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from graphql import (
    DocumentNode,
    GraphQLSyntaxError,
    Lexer,
    Location,
    Node,
    Source,
    SourceLocation,
    Token,
    TokenKind,
    TypeInfo,
    TypeInfoVisitor,
)
from graphql.language.parser import Parser
from graphql.language.visitor import EnterLeaveVisitor

from dataapi.pauses import pause

LONGEST_BLOCK_STRING = 100_000
"""Characters of the longest block string, which is read character by character."""

_IGNORED = re.compile(r"(?:[ \t,\ufeff\r\n]++|#[^\r\n\ud800-\udfff]*+)*+")
_TOKEN = re.compile(
    r"""
      (?P<name>[_A-Za-z][_0-9A-Za-z]*+)
    | (?P<punctuator>[!$&():=@\[\]{|}]|\.\.\.)
    | (?P<number>-?(?:0|[1-9][0-9]*+)(?P<real>(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![._0-9A-Za-z]))
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r'[^"\\\r\n\ud800-\udfff]*+')
# Not possessive: before Python 3.11.5 a group that fails halfway leaves the match a character too long.
_BLOCK_STRING = re.compile(r'"""(?:[^"\\]++|\\"""|\\|"(?!""))*')
_PUNCTUATORS = {kind.value: kind for kind in TokenKind}


def parse_document(text: str, tokens: int) -> tuple[DocumentNode, int]:
    """Return the tree of a document and how many tokens it has.

    :param tokens: how many it may have.
    :raises GraphQLError: the text is no document, or has more tokens.
    """
    lexer = _Lexer(_Source(text))
    parsed = _Parser(lexer.source, lexer=lexer, max_lexical_tokens=tokens).parse_document()
    return parsed, lexer.count


def place_of(node: Node) -> SourceLocation | None:
    """Return line and column of a node, None for one that is in no text."""
    return SourceLocation(node.loc.line, node.loc.column) if isinstance(node.loc, _Place) else None


class _Place(Location):
    """Where a node is in the text; without its tokens, which take more memory than the node."""

    __slots__ = ("column", "line")

    def __init__(self, start: Token, end: Token, source: Source) -> None:
        self.start, self.end, self.source = start.start, end.end, source
        self.line, self.column = start.line, start.column


class _Parser(Parser):
    """Makes nodes that know their places."""

    def loc(self, start_token: Token) -> _Place:
        """Return the place of a node that ends with the last token."""
        return _Place(start_token, self._lexer.last_token, self._lexer.source)


class PausingTypeInfo(TypeInfo):
    """Follows the types of what is visited, and pauses at each node."""

    def enter(self, node: Node) -> None:
        """Enter a node."""
        pause()
        super().enter(node)


class AcyclicTypeInfoVisitor(TypeInfoVisitor):
    """Leaves nothing to the garbage collector, which would find a tree late.

    Visitors keep by the kind of node what they do with it, and that refers to them.  This one does not, so
    that it is free after the visit, and makes the one in it forget.
    """

    def __del__(self) -> None:
        self.visitor.enter_leave_map.clear()

    def get_enter_leave_for_kind(self, kind: str) -> EnterLeaveVisitor:  # noqa: ARG002 - the base's
        """Return what is done with nodes of a kind: the same with all."""
        return EnterLeaveVisitor(self.enter, self.leave)


# ``validate`` makes its own, and others of its rules walk with them.
for _name in ("validate", "validation_context"):
    _module: Any = import_module(f"graphql.validation.{_name}")
    _module.TypeInfo, _module.TypeInfoVisitor = PausingTypeInfo, AcyclicTypeInfoVisitor


class _Source(Source):
    """A text in which places are found at once, however many lines it has."""

    def get_location(self, position: int) -> SourceLocation:
        """Return line and column, both from 1 on."""
        lines, line_start = _lines(self.body[:position])
        return SourceLocation(1 + lines, position + 1 - line_start)


def _lines(text: str) -> tuple[int, int]:
    """Return how many lines end in a text, and where the last one begins."""
    ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    return ends, 1 + max(text.rfind("\n"), text.rfind("\r"))


class _Lexer(Lexer):
    """Reads tokens and leaves comments out.

    A token knows the next one but not the one before it, so that it goes once it has been read.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.count = 0

    def lookahead(self) -> Token:
        """Return the next token and stay where we are."""
        token = self.token
        if token.kind is TokenKind.EOF:
            return token
        if token.next is None:
            token.next = self.read_next_token(token.end)
        return token.next

    def read_next_token(self, start: int) -> Token:
        """Return the token after a position."""
        pause()
        self.count += 1
        body = self.source.body
        ignored = _IGNORED.match(body, start)
        assert ignored is not None, "nothing matches, too"
        position = ignored.end()
        lines, line_start = _lines(body[start:position])
        if lines:
            self.line += lines
            self.line_start = start + line_start
        match = _TOKEN.match(body, position)
        if match is None:
            return super().read_next_token(position)  # strings, the end, and what is no token
        kind = TokenKind.NAME
        if match["punctuator"]:
            return self.create_token(_PUNCTUATORS[match[0]], position, match.end())
        if match["number"]:
            kind = TokenKind.FLOAT if match["real"] else TokenKind.INT
        return self.create_token(kind, position, match.end(), match[0])

    def read_string(self, start: int) -> Token:
        """Return the string that begins at a position."""
        body = self.source.body
        parts: list[str] = []
        position = start + 1
        while True:
            plain = _PLAIN.match(body, position)
            assert plain is not None, "nothing matches, too"
            parts.append(plain[0])
            position = plain.end()
            following = body[position : position + 3]
            if following[:1] == '"':
                return self.create_token(TokenKind.STRING, start, position + 1, "".join(parts))
            if following[:1] != "\\":
                return super().read_string(position - 1)  # nothing but its error is left to read
            pause()
            if following == "\\u{":
                escape = self.read_escaped_unicode_variable_width(position)
            elif following[:2] == "\\u":
                escape = self.read_escaped_unicode_fixed_width(position)
            else:
                escape = self.read_escaped_character(position)
            parts.append(escape.value)
            position += escape.size

    def read_block_string(self, start: int) -> Token:
        """Return the block string that begins at a position."""
        longest = start + LONGEST_BLOCK_STRING + len('"""')
        match = _BLOCK_STRING.match(self.source.body, start, longest)
        if match is not None and match.end() - start > LONGEST_BLOCK_STRING:
            message = (
                f"The block string has more than the {LONGEST_BLOCK_STRING} characters allowed: "
                "send long values as variables."
            )
            raise GraphQLSyntaxError(self.source, start, message)
        return super().read_block_string(start)
