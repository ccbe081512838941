"""The areas of the HTTP interface: below which path which methods are taken and how errors look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from dataapi.errors import ApiError
from dataapi.web import render
from dataapi.web.messages import Reply, Request
from dataapi.webhooks.management import body


class Refuse(Protocol):
    """Renders an error in a protocol's form."""

    def __call__(self, error: ApiError, request: Request, verbosity: str = "verbose") -> Reply:
        """Return the answer; ``minimal`` verbosity leaves details and hint out."""


@dataclass(frozen=True, slots=True)
class Area:
    """One protocol's part of the paths.

    :ivar name: for logs and metrics.
    :ivar methods: what its resources take, ``OPTIONS`` included.
    :ivar own_options: whether its handlers answer an ``OPTIONS`` that is no preflight.
    :ivar refuse: renders an error in the protocol's form.
    :ivar of_project: whether a project answers, so that its host name must be served.
    :ivar own_methods: whether its handlers say which methods each path takes.
    :ivar max_body: bytes that are read of a body, and refused beyond, whatever more the project takes; None
        where only the project says so.
    """

    name: str
    prefix: str
    methods: tuple[str, ...]
    own_options: bool
    refuse: Refuse
    of_project: bool = True
    own_methods: bool = False
    max_body: int | None = None


_MOST_GRAPHQL = 1_048_576
"""Bytes of a GraphQL request, which is read at once while everybody else waits."""

GRAPHQL = Area(
    "graphql",
    "/graphql/",
    ("GET", "POST", "HEAD", "OPTIONS"),
    False,
    render.graphql,
    max_body=_MOST_GRAPHQL,
)
REST = Area("rest", "/rest/", ("GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "HEAD"), True, render.rest)
MANAGEMENT = Area(
    "webhooks",
    "/v2/",
    ("GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"),
    True,
    render.management,
    of_project=False,
    own_methods=True,
    max_body=body.MOST_READ,
)
PUBLISHING = replace(MANAGEMENT, prefix="/v1/webhooks/", methods=("POST", "OPTIONS"))
ELSEWHERE = Area("other", "/", ("GET", "HEAD", "OPTIONS"), False, render.rest)

_AREAS = (GRAPHQL, REST, MANAGEMENT, PUBLISHING)


def area_of(path: str) -> Area:
    """Return the area that a path belongs to; paths of none have one of their own."""
    return next((area for area in _AREAS if path.startswith(area.prefix)), ELSEWHERE)
