"""Adaptations of graphql-core that depend on its internals.

This module contains a parser that uses regular expressions and little memory, visits that leave no reference
cycles, and types and schemas that are created lazily. A schema of a thousand tables has about 15,000 types,
of which a role's documents use a few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import graphql as gql
from graphql.language.parser import Parser
from graphql.type.schema import InterfaceImplementations

LONGEST_BLOCK_STRING = 100_000
"""Maximum length of a block string. graphql-core reads it character by character."""

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
# The outer group is not possessive: before Python 3.11.5, a possessive group that fails halfway leaves the
# match one character too long.
_BLOCK_STRING = re.compile(r'"""(?:[^"\\]++|\\"""|\\|"(?!""))*')
_PUNCTUATORS = {kind.value: kind for kind in gql.TokenKind}


def parse_document(text: str, tokens: int) -> tuple[gql.DocumentNode, int]:
    """Return the syntax tree of a document and its number of tokens.

    :raises GraphQLError: the syntax is invalid, or the document has more than ``tokens`` tokens.
    """
    lexer = _Lexer(_SourceText(text))
    parsed = _DocumentParser(lexer.source, lexer=lexer, max_lexical_tokens=tokens).parse_document()
    return parsed, lexer.count


def location_of(node: gql.Node) -> gql.SourceLocation | None:
    return (
        gql.SourceLocation(node.loc.line, node.loc.column) if isinstance(node.loc, _CompactLocation) else None
    )


def offset(node: gql.Node) -> int:
    return -1 if node.loc is None else node.loc.start


class _CompactLocation(gql.Location):
    """The location of a node, without its tokens, because they would use more memory than the node."""

    __slots__ = ("column", "line")

    def __init__(self, start: gql.Token, end: gql.Token, source: gql.Source) -> None:
        self.start, self.end, self.source = start.start, end.end, source
        self.line, self.column = start.line, start.column


class _DocumentParser(Parser):
    def loc(self, start_token: gql.Token) -> _CompactLocation:
        return _CompactLocation(start_token, self._lexer.last_token, self._lexer.source)


def visit_types(
    node: gql.Node,
    types: gql.TypeInfo,
    visitors: Sequence[gql.Visitor],
    keys: dict[str, tuple[str, ...]] | None = None,
) -> None:
    """Visit a tree with visitors that may read the type at each node.

    Visitors cache their bound methods by kind of node, and these methods refer to the visitors. Clearing the
    caches breaks these cycles, so that the tree is freed without a garbage collection.
    """
    parallel = gql.ParallelVisitor(visitors)
    typed = gql.TypeInfoVisitor(types, parallel)
    try:
        gql.visit(node, typed, keys)
    finally:
        for visitor in (typed, parallel, *visitors):
            visitor.enter_leave_map.clear()


class _SourceText(gql.Source):
    def get_location(self, position: int) -> gql.SourceLocation:
        lines, line_start = _lines(self.body[:position])
        return gql.SourceLocation(1 + lines, position + 1 - line_start)


def _lines(text: str) -> tuple[int, int]:
    ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    return ends, 1 + max(text.rfind("\n"), text.rfind("\r"))


class _Lexer(gql.Lexer):
    """Reads tokens and skips comments.

    A token has a reference to the next token but not to the previous one, so it is freed after use.
    """

    def __init__(self, source: gql.Source) -> None:
        super().__init__(source)
        self.count = 0

    def lookahead(self) -> gql.Token:
        token = self.token
        if token.kind is gql.TokenKind.EOF:
            return token
        if token.next is None:
            token.next = self.read_next_token(token.end)
        return token.next

    def read_next_token(self, start: int) -> gql.Token:
        self.count += 1
        body = self.source.body
        ignored = _IGNORED.match(body, start)
        assert ignored is not None, "the pattern matches an empty string"
        position = ignored.end()
        lines, line_start = _lines(body[start:position])
        if lines:
            self.line += lines
            self.line_start = start + line_start
        match = _TOKEN.match(body, position)
        if match is None:
            # Use graphql-core's lexer for strings, the end of the text, and invalid tokens.
            return super().read_next_token(position)
        kind = gql.TokenKind.NAME
        if match["punctuator"]:
            return self.create_token(_PUNCTUATORS[match[0]], position, match.end())
        if match["number"]:
            kind = gql.TokenKind.FLOAT if match["real"] else gql.TokenKind.INT
        return self.create_token(kind, position, match.end(), match[0])

    def read_string(self, start: int) -> gql.Token:
        body = self.source.body
        parts: list[str] = []
        position = start + 1
        while True:
            plain = _PLAIN.match(body, position)
            assert plain is not None, "the pattern matches an empty string"
            parts.append(plain[0])
            position = plain.end()
            following = body[position : position + 3]
            if following[:1] == '"':
                return self.create_token(gql.TokenKind.STRING, start, position + 1, "".join(parts))
            if following[:1] != "\\":
                return super().read_string(position - 1)  # raises the syntax error
            if following == "\\u{":
                escape = self.read_escaped_unicode_variable_width(position)
            elif following[:2] == "\\u":
                escape = self.read_escaped_unicode_fixed_width(position)
            else:
                escape = self.read_escaped_character(position)
            parts.append(escape.value)
            position += escape.size

    def read_block_string(self, start: int) -> gql.Token:
        longest = start + LONGEST_BLOCK_STRING + len('"""')
        match = _BLOCK_STRING.match(self.source.body, start, longest)
        if match is not None and match.end() - start > LONGEST_BLOCK_STRING:
            message = (
                f"The block string has more than the {LONGEST_BLOCK_STRING} characters allowed: "
                "send long values as variables."
            )
            raise gql.GraphQLSyntaxError(self.source, start, message)
        return super().read_block_string(start)


T = TypeVar("T")


class LazyMap(Mapping[str, T]):
    """A mapping with values that are created on first use.

    graphql-core looks up single types and fields, and iterates over all of them only for introspection.
    Threads may share a mapping: if two create a value for the same name, both get the value that was created
    first (``dict.setdefault`` is atomic).

    :param make: returns the value for a name, None if there is none.
    :param names: returns the listed names in order. A listed name may have no value.
    :param unlisted: names that have a value but are not listed.
    """

    def __init__(
        self,
        make: Callable[[str], T | None],
        names: Callable[[], Iterable[str]],
        unlisted: frozenset[str] = frozenset(),
    ) -> None:
        self._make = make
        self._names = names
        self._unlisted = unlisted
        self._values: dict[str, T] = {}
        self._is_complete = False

    def __getitem__(self, name: str) -> T:
        value = self._values.get(name)
        if value is None and (not self._is_complete or name in self._unlisted):
            value = self._make(name)
            if value is not None and name not in self._unlisted:
                value = self._values.setdefault(name, value)
        if value is None:
            raise KeyError(name)
        return value

    def created(self) -> list[T]:
        return list(self._values.values())

    def _all(self) -> dict[str, T]:
        if not self._is_complete:
            self._values = {name: self[name] for name in self._names() if name in self}
            self._is_complete = True
        return self._values

    def copy(self) -> dict[str, T]:
        return dict(self._all())

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class LazyObjectType(gql.GraphQLObjectType):
    """An object type with fields that are created on first use."""

    def __init__(
        self,
        name: str,
        make: Callable[[str], gql.GraphQLField | None],
        names: Callable[[], Iterable[str]],
        description: str,
        unlisted: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(name, fields={}, description=description)
        self.fields = LazyMap(make, names, unlisted)


class LazySchema(gql.GraphQLSchema):
    """A schema with types that are created on first use.

    graphql-core's constructor would visit every type. The schema is valid by construction, as a test checks.

    :param subscription: the name of the subscription root type, None if there is none.
    """

    def __init__(
        self, query: gql.GraphQLObjectType, types: LazyMap[gql.GraphQLNamedType], subscription: str | None
    ) -> None:
        super().__init__(assume_valid=True)
        del self.mutation_type, self.subscription_type  # they would hide the cached properties below
        self.query_type = query
        self._subscription = subscription
        self.type_map = types  # type: ignore[assignment]  # graphql-core only changes it while building the schema

    @cached_property
    def mutation_type(self) -> Any:  # type: ignore[override]  # graphql-core assigns it
        """The type ``Mutation``, None if the role has none. Computing it may visit every table."""
        return self.type_map.get("Mutation")

    @cached_property
    def subscription_type(self) -> Any:  # type: ignore[override]  # as above
        return None if self._subscription is None else self.type_map.get(self._subscription)

    def get_implementations(self, interface_type: gql.GraphQLInterfaceType) -> InterfaceImplementations:
        objects = [
            type_
            for type_ in self.type_map.values()
            if isinstance(type_, gql.GraphQLObjectType) and interface_type in type_.interfaces
        ]
        return InterfaceImplementations(objects=objects, interfaces=[])

    def is_sub_type(
        self, abstract_type: gql.GraphQLAbstractType, maybe_sub_type: gql.GraphQLNamedType
    ) -> bool:
        return (
            isinstance(maybe_sub_type, gql.GraphQLObjectType) and abstract_type in maybe_sub_type.interfaces
        )
