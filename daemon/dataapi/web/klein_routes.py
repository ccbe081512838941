"""Routes that are declared on a Klein application (docs/decisions/klein-routes.md)."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import cast

from klein import Klein
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

from dataapi.web.families import family_of
from dataapi.web.routing import Handler, Route, form_of


def route(app: Klein, rule: str) -> Callable[[Handler], Handler]:
    """Declare a handler. It is called with the backend, the request and the arguments of the rule."""
    # According to Klein's types, handlers receive twisted.web requests.
    return cast("Callable[[Handler], Handler]", app.route(rule, strict_slashes=False))


class KleinRoutes:
    """The routes of an application."""

    def __init__(self, app: Klein) -> None:
        app.url_map.merge_slashes = False
        # Klein has wrapped the handlers for twisted.web. We call the original handlers.
        self._handlers: dict[str, Handler] = {
            name: cast("Handler", unwrap(endpoint)) for name, endpoint in app.endpoints.items()
        }
        self._urls = app.url_map.bind("")

    def find(self, path: str) -> Route | None:
        try:
            rule, arguments = self._urls.match(path, return_rule=True)
        except (HTTPException, RequestRedirect):
            return None
        handler = self._handlers[str(rule.endpoint)]
        return Route(path, family_of(path), handler, dict(arguments), form_of(rule.rule))
