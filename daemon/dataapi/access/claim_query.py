"""A query of RFC 9535 for the role within a token's claims; imported where a configuration has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jsonpath_rfc9535 as jsonpath
from jsonpath_rfc9535.selectors import IndexSelector, NameSelector

from dataapi.access.rolepath import listed


@dataclass(frozen=True, slots=True)
class ClaimQuery:
    """A query, of whose values the first one counts."""

    query: jsonpath.JSONPathQuery

    def find(self, claims: Any) -> Any:
        """Return the first value that the query finds in decoded JSON, or None when it finds none."""
        try:
            found = self.query.find_one(claims)
        except (jsonpath.JSONPathError, RecursionError):  # of claims that are nested too deeply
            return None
        return None if found is None else found.value

    def claims_with(self, role: str) -> Any:
        """Return claims with the role where the query may find it, as far as such can be made."""
        claims: Any = role
        for segment in reversed(self.query.segments):
            match segment.selectors[0]:
                case NameSelector(name=name):
                    claims = {name: claims}
                case IndexSelector(index=position):
                    claims = listed(position, claims)
                case _:
                    claims = [claims]
        return claims


def parse(text: str) -> ClaimQuery:
    """Read a query.

    :raises ValueError: it is malformed, or takes the claims as a whole; the message says where.
    """
    try:
        query = jsonpath.compile(text)
    except jsonpath.JSONPathError as error:
        position = error.token.index + 1 if error.token else 1
        raise ValueError(f"no path of a claim from character {position} on: {error.args[0]}") from None
    except RecursionError:
        raise ValueError("no path of a claim from character 1 on: nested too deeply") from None
    if not query.segments:
        raise ValueError("no path of a claim from character 2 on: expected .name or [...] after $")
    return ClaimQuery(query)
