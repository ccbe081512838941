"""Endpoints with two weeks of deliveries in the demo, for screenshots of the console."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.request import Request, urlopen

from dataapi.database.script import connected

ORGANIZATION, PROJECT = "demo", "demodemodemodemodemo"
DELIVERIES = Path(__file__).with_name("sample-deliveries.sql")
NOWHERE = "http://127.0.0.1:9/"
"""Prefix of the endpoints' URLs while they are created, because the host names below do not resolve."""

ENDPOINTS = (
    ("https://billing.acme.example/hooks", "Billing", ("*",)),
    (
        "https://search.acme.example/index/webhooks?source=dataapi",
        "Search index",
        (
            "v1.project.created",
            "v1.project.restored",
            "v1.project.paused",
            "v1.project.removed",
            "v1.project.backup.started",
        ),
    ),
    ("https://chat.acme.example/incoming/8f3b2c", "Operators' chat", ("v1.project.paused",)),
)


def fill(address: str, banner: str) -> str:
    """Create the endpoints and deliveries, and return the demo's webhooks token.

    :param address: URL of the demo.
    :param banner: output of the demo.
    """
    [token] = re.findall(r"dapat_[\w-]+", banner)
    [uri] = re.findall(r"psql '([^']+)'", banner)
    for url, description, types in ENDPOINTS:
        attributes = {
            "url": NOWHERE + url,
            "description": description,
            "event_types": [{"type": one} for one in types],
            "signing_secret": "a signing secret",
            "custom_headers": {"X-Source": "demo"} if len(types) > 1 else {},
        }
        request = Request(
            f"{address}/v2/projects/{PROJECT}/webhooks/endpoints",
            json.dumps({"data": {"type": "endpoint", "attributes": attributes}}).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urlopen(request, timeout=60):
            pass
    with connected(uri) as fetch:
        fetch(DELIVERIES.read_text("utf-8"), ())
        fetch("update webhooks.endpoint set url = replace(url, $1, '')", (NOWHERE,))
    return token


def session(token: str) -> str:
    """Return a script that signs in to the console's Webhooks page."""
    signed_in = {
        "token": token,
        "organization": ORGANIZATION,
        "projects": [PROJECT],
        "permissions": ["webhooks:read", "webhooks:write"],
    }
    return f"sessionStorage.setItem('dataapi.webhooks', JSON.stringify({json.dumps(signed_in)}))"
