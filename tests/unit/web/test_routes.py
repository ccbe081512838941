"""Our matching of API routes agrees with Klein's URL map."""

from __future__ import annotations

import pytest
from dataapi.web.app import API_ROUTES
from dataapi.web.klein_routes import KleinRoutes
from dataapi.web.routes import make_app
from dataapi.web.routing import Routes
from hypothesis import given
from hypothesis import strategies as st

DECLARED = KleinRoutes(make_app(API_ROUTES))
NAMES = ["graphql", "rest", "v1", "v2", "rpc", "a", "a b", "é", ".", "..", "%2F", "", "console", "<a>"]


class Nothing:
    """A fallback without routes."""

    def find(self, _path: str) -> None:
        return None


DIRECT = Routes(API_ROUTES, Nothing)


def assert_agreement(path: str) -> None:
    direct, declared = DIRECT._match(path), DECLARED.find(path)
    is_api = declared is not None and declared.form in {route.form for route in API_ROUTES}
    assert (direct is not None) == is_api, path
    if direct is not None and declared is not None:
        assert (direct.path, direct.family, direct.form) == (path, declared.family, declared.form)


@pytest.mark.parametrize(
    "path",
    [
        *("/graphql/v1", "/graphql/v1/", "/graphql/v1//", "/graphql/v1/a", "/graphql", "/graphql/v12"),
        *("/rest/v1", "/rest/v1/", "/rest/v1//", "/rest/v1/a", "/rest/v1/a/", "/rest/v1/a/b", "/rest/v1//a"),
        *("/rest/v1/rpc", "/rest/v1/rpc/", "/rest/v1/rpc/f", "/rest/v1/rpc/f/", "/rest/v1/rpc/f/g"),
        *("/", "", "/console", "/rest/v2/a", "/REST/v1/a", "/rest/v1/a\n", "/graphql/v1\n"),
    ],
)
def test_paths_are_matched_as_klein_matches_them(path: str) -> None:
    assert_agreement(path)


@given(st.lists(st.sampled_from(NAMES), max_size=6))
def test_any_path_is_matched_as_klein_matches_it(names: list[str]) -> None:
    assert_agreement("/" + "/".join(names))
