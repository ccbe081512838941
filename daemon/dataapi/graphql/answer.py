"""A GraphQL request and its answer as values, between the HTTP rules and the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class GraphQLRequest:
    """The members of a GraphQL-over-HTTP request, their JSON types already checked.

    :ivar query: the text of the document, None when it is named by one of the last two members.
    :ivar read_only: the request came by GET, so that only queries may run.
    :ivar document_id: the id of a persisted document.
    :ivar persisted_hash: the hash of one, as Apollo sends it in ``extensions.persistedQuery``.
    """

    query: str | None
    operation_name: str | None = None
    variables: Mapping[str, Any] | None = None
    extensions: Mapping[str, Any] | None = None
    read_only: bool = False
    document_id: str | None = None
    persisted_hash: str | None = None


class Stage(Enum):
    """How far an operation came, which decides the HTTP status (reference/graphql.md 2.2)."""

    DOCUMENT = "document"  # there is no such document, or it may not run
    PARSE = "parse"
    VALIDATION = "validation"
    VARIABLES = "variables"
    METHOD = "method"  # a mutation by GET: 405 with Allow: POST
    EXECUTION = "execution"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine answers.

    :ivar data: the JSON text of ``data`` (``null`` when an error reached the root), or
        None when the operation was never executed and the member is absent.
    :ivar errors: formatted errors: ``message``, ``locations``, ``path``, ``extensions``.
    :ivar extensions: the response's ``extensions`` member, left out when empty.
    """

    stage: Stage
    data: str | None
    errors: tuple[Mapping[str, Any], ...] = ()
    extensions: Mapping[str, Any] = field(default_factory=dict)
