"""The areas of the HTTP interface: below which path which methods are taken and how errors look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dataapi.errors import ApiError
from dataapi.web import render
from dataapi.web.messages import Reply, Request


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
    """

    name: str
    prefix: str
    methods: tuple[str, ...]
    own_options: bool
    refuse: Refuse


GRAPHQL = Area("graphql", "/graphql/", ("GET", "POST", "HEAD", "OPTIONS"), False, render.graphql)
REST = Area("rest", "/rest/", ("GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS"), True, render.rest)
ELSEWHERE = Area("other", "/", ("GET", "HEAD", "OPTIONS"), False, render.rest)


def area_of(path: str) -> Area:
    """Return the area that a path belongs to; paths of none have one of their own."""
    return next((area for area in (GRAPHQL, REST) if path.startswith(area.prefix)), ELSEWHERE)
