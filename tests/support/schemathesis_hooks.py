"""Replaces generated values that schemathesis cannot know, such as resolvable names and valid payloads.

Only valid values are replaced, so that invalid values are still sent.
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
    """Replace values that schemathesis cannot generate from the schema."""
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
    # Disabled endpoints reject tests and retries, and enabled endpoints reject tests of unsubscribed types.
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
    """Set the payload and scope required by a known event type."""
    known = _TYPES.get(str(attributes.get("type")))
    if known is None or not isinstance(attributes.get("payload", {}), dict):
        return
    attributes["payload"] = dict(known.example)
    if isinstance(attributes.get("organization_slug"), str) and attributes["organization_slug"]:
        attributes["organization_slug"] = _ORGANIZATION
    if isinstance(attributes.get("project_ref"), str | None):
        attributes["project_ref"] = known.example["project_ref"] and _PROJECT
