"""Who is calling: the database role of a request and the claims that came with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller after the API key and the bearer token were checked.

    :ivar role: the PostgreSQL role that the request's transaction runs under.
    :ivar claims: the verified claims as JSON text, for ``request.jwt.claims``.
    """

    role: str
    claims: str
