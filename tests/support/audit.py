"""Runs the audits of the npm package ``graphql-http`` against a URL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.node import install, run_script

AUDITS = 60
"""Number of audits in the version of ``graphql-http`` below."""

_PACKAGES = ("graphql-http@1.22.4", "graphql@16.11.0")
_SCRIPT = Path(__file__).parent.parent / "web" / "audit.mjs"


async def audit(
    reactor: Any, directory: Path, url: str, headers: Mapping[str, str]
) -> list[dict[str, str | None]]:
    """Return the results of the audits: ``id``, ``name``, ``status`` (``ok`` if passed) and ``reason``.

    :param directory: directory for the packages, shared between runs.
    :param headers: headers of every request.
    """
    await install(reactor, directory, *_PACKAGES)
    out = await run_script(reactor, _SCRIPT, str(directory), url, json.dumps(dict(headers)))
    results: list[dict[str, str | None]] = json.loads(out)
    return results
