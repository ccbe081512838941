"""Makes what schemathesis sends mean something: it cannot know which names resolve or what payloads are.

Only what the document allows is replaced, so that refusals of the rest are still asked for.
"""

from __future__ import annotations

from typing import Any

import schemathesis
from dataapi.webhooks.management.resources import parse_timestamp
from dataapi.webhooks.plugins import installed_catalogue

URL = "https://receiver.example/hooks"
_ORGANIZATION, _PROJECT = "acme", "abcdefghijklmnopqrst"
_TYPES = installed_catalogue().types


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """Replace what no schema can tell."""
    for document in case.body if isinstance(case.body, list) else [case.body]:
        data = document.get("data") if isinstance(document, dict) else None
        attributes = data.get("attributes") if isinstance(data, dict) else None
        if isinstance(attributes, dict):
            _make_meaningful(case.path, attributes)


def _make_meaningful(path: str, attributes: dict[str, Any]) -> None:
    url = attributes.get("url")
    if isinstance(url, str) and len(url) <= 2048:
        attributes["url"] = URL
    headers = attributes.get("custom_headers")
    if isinstance(headers, dict) and len({name.lower() for name in headers}) < len(headers) <= 20:
        attributes["custom_headers"] = {}
    # A disabled endpoint takes no test and no retry, an enabled one no test of a type it is not told of.
    if attributes.get("enabled") is False:
        attributes["enabled"] = True
    if path.endswith("/test") and str(attributes.get("type")) in _TYPES:
        del attributes["type"]
    expiry = attributes.get("expires_at")
    if isinstance(expiry, str) and parse_timestamp(expiry) is not None:
        attributes["expires_at"] = "2099-01-01T00:00:00Z"
    if path.endswith("/events"):
        _make_event(attributes)


def _make_event(attributes: dict[str, Any]) -> None:
    """Give an event of a known type the payload and the scope that its type wants."""
    known = _TYPES.get(str(attributes.get("type")))
    if known is None or not isinstance(attributes.get("payload", {}), dict):
        return
    attributes["payload"] = dict(known.example)
    if isinstance(attributes.get("organization_slug"), str) and attributes["organization_slug"]:
        attributes["organization_slug"] = _ORGANIZATION
    if isinstance(attributes.get("project_ref"), str | None):
        attributes["project_ref"] = known.example["project_ref"] and _PROJECT
