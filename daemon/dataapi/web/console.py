"""The GraphQL console: one page for a person's browser, complete in itself."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from dataapi.http.messages import Reply

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def page(html: str) -> Reply:
    """Return a page as an answer that lets it load nothing from elsewhere.

    Its own script and style are allowed by their hashes, and it may send requests to its
    own origin alone.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    policy = (
        f"default-src 'none'; script-src {' '.join(hashes['script'])}; "
        f"style-src {' '.join(hashes['style'])}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Reply(
        200,
        (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Security-Policy", policy),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-cache"),
            ("Vary", "Accept"),
        ),
        html.encode(),
    )


PAGE = page(files("dataapi.web").joinpath("console.html").read_text("utf-8"))
"""The console, read once at start."""
