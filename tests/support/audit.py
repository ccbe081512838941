"""Runs the audits of the npm package ``graphql-http`` against any URL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.node import install, run_script

AUDITS = 60
"""How many audits that version of the package has."""

_PACKAGES = ("graphql-http@1.22.4", "graphql@16.11.0")
_SCRIPT = Path(__file__).parent.parent / "web" / "audit.mjs"


async def audit(
    reactor: Any, directory: Path, url: str, headers: Mapping[str, str]
) -> list[dict[str, str | None]]:
    """Return the audits' results: ``id``, ``name``, ``status`` (``ok`` when passed) and ``reason``.

    :param directory: where the packages are kept between runs.
    :param headers: sent with every request.
    """
    await install(reactor, directory, *_PACKAGES)
    out = await run_script(reactor, _SCRIPT, str(directory), url, json.dumps(dict(headers)))
    results: list[dict[str, str | None]] = json.loads(out)
    return results
