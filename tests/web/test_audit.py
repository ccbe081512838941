"""The ``graphql-http`` audits detect a server that does not conform to GraphQL over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.web.app import make_site
from support.audit import audit
from support.memory_http import KEY, Web, typename

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.time_limit(180)
async def test_audits_detect_a_nonconforming_server(reactor: Any, npm_audit: Path) -> None:
    web = Web(typename)
    site = make_site(web.backends, reactor, web.served.append)
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    try:
        url = f"http://127.0.0.1:{port.getHost().port}/graphql/v1"
        results = await audit(reactor, npm_audit, url, {"apikey": KEY})
    finally:
        await port.stopListening()
        await site.drain(1)
    failed = {result["id"] for result in results if result["status"] != "ok"}
    assert {"556A", "74FF", "86EE", "9C48"} <= failed
