"""An issuer's published keys are fetched over HTTP, refreshed on demand, and limited in size."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from dataapi.auth import published_keys
from dataapi.auth.authenticator import Authenticator
from dataapi.auth.published_keys import (
    MAX_BODY_BYTES,
    MIN_REFRESH_INTERVAL,
    TIME_LIMIT,
    FetchedKeySet,
    FetchError,
    PublishedKeys,
    fetcher,
)
from dataapi.http.errors import GatewayError, TokenError
from dataapi.http.messages import Request
from jwt.algorithms import ECAlgorithm
from support.memory_http import KEY, PROJECT
from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

URL = "https://issuer.example.org/jwks.json"
NOW = 1_800_000_000.0
# PyJWT 2.9 omits a key's leading zeros when it exports the key, and then rejects the key.
PRIVATE = {
    kid: ec.derive_private_key(int.from_bytes(range(first, first + 32)), ec.SECP256R1())
    for kid, first in (("old", 64), ("new", 96))
}


def jwks(*kids: str) -> bytes:
    members = [
        {**ECAlgorithm.to_jwk(PRIVATE[kid].public_key(), as_dict=True), "kid": kid, "alg": "ES256"}
        for kid in kids
    ]
    return json.dumps({"keys": members}).encode()


def token(kid: str, **claims: Any) -> str:
    return jwt.encode({"role": "authenticated", **claims}, PRIVATE[kid], "ES256", headers={"kid": kid})


class Issuer(Resource):
    """Publishes the key set in ``body``."""

    isLeaf = True  # noqa: N815 - twisted's name

    def __init__(self) -> None:
        super().__init__()
        self.body: bytes | None = jwks("old")
        self.status = 200
        self.headers: dict[str, str] = {}
        self.requests = 0

    def render_GET(self, request: Any) -> Any:  # noqa: N802 - twisted's name
        """Respond. Without a body, the response never ends."""
        self.requests += 1
        request.setResponseCode(self.status)
        for name, value in self.headers.items():
            request.setHeader(name, value)
        etag = self.headers.get("ETag")
        if etag is not None and request.getHeader("If-None-Match") == etag:
            request.setResponseCode(304)
            return b""
        if self.body is None:
            request.write(b"{")
            return NOT_DONE_YET
        return self.body


class Guarded:
    """An authenticator with an issuer's keys, in memory and with a simulated clock."""

    def __init__(self, issuer: Issuer) -> None:
        self.clock = Clock()
        self._agent = RequestTraversalAgent(issuer)
        self._fetch = fetcher(self.clock, self._agent)
        self.authenticator = Authenticator(replace(PROJECT, jwt_secret=URL), lambda: NOW)
        self.keys = PublishedKeys(URL, self.fetch, self.authenticator.use_keys, self.clock)
        self.authenticator.on_unknown_key(self.keys.refresh)

    def fetch(self, url: str = URL, etag: str | None = None) -> Deferred[FetchedKeySet]:
        """Fetch the key set like the daemon and transmit the response if it is available."""
        fetching = self._fetch(url, etag)
        self._agent.flush()
        return fetching

    async def role(self, bearer: str | None, apikey: str = KEY) -> str:
        """Return the role of a request with this token."""
        headers = {"apikey": apikey} | ({"authorization": f"Bearer {bearer}"} if bearer else {})
        request = Request("id", "GET", "/rest/v1/t", "", headers, b"")
        return (await self.authenticator.authenticate(request)).role


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


async def test_token_signed_with_a_published_key_is_accepted(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    await guarded.keys.start()
    assert await guarded.role(token("old")) == "authenticated"
    assert await guarded.role(None, token("old", role="anon")) == "anon", "as an API key"
    assert await guarded.role(None) == "anon"
    guarded.keys.stop()


async def test_new_key_is_fetched_when_a_token_needs_it(
    issuer: Issuer,
) -> None:
    guarded = Guarded(issuer)
    await guarded.keys.start()
    issuer.body = jwks("new")
    for bearer, apikey in ((token("new"), KEY), (None, token("new"))):
        with pytest.raises((TokenError, GatewayError)) as refused:
            await guarded.role(bearer, apikey)
        assert refused.value.status == 401, "the keys have just been fetched"
    guarded.clock.advance(MIN_REFRESH_INTERVAL)
    assert await guarded.role(None, token("new")) == "authenticated"
    assert issuer.requests == 2
    with pytest.raises(TokenError, match="No suitable key"):
        await guarded.role(token("old"))
    guarded.keys.stop()


async def test_cached_tokens_of_a_withdrawn_key_are_rejected(
    issuer: Issuer,
) -> None:
    guarded = Guarded(issuer)
    await guarded.keys.start()
    assert await guarded.role(token("old")) == "authenticated"
    issuer.body = jwks("new")
    guarded.clock.advance(MIN_REFRESH_INTERVAL)
    assert await guarded.role(token("new")) == "authenticated"
    with pytest.raises(TokenError, match="No suitable key"):
        await guarded.role(token("old"))
    guarded.keys.stop()


async def test_tokens_get_503_until_keys_are_fetched(
    issuer: Issuer,
) -> None:
    issuer.status = 500
    guarded = Guarded(issuer)
    await guarded.keys.start()
    for bearer, apikey in ((token("old"), KEY), (None, token("old"))):
        with pytest.raises(TokenError) as refused:
            await guarded.role(bearer, apikey)
        assert (refused.value.status, refused.value.code) == (503, "PGRST300")
        assert dict(refused.value.headers) == {"Retry-After": "5"}
    assert await guarded.role(None) == "anon"
    issuer.status = 200
    guarded.clock.advance(MIN_REFRESH_INTERVAL)
    assert await guarded.role(token("old")) == "authenticated"
    guarded.keys.stop()


async def test_unchanged_key_set_returns_304(issuer: Issuer) -> None:
    issuer.headers = {"ETag": '"1"', "Cache-Control": "max-age=600"}
    guarded = Guarded(issuer)
    first = await guarded.fetch()
    assert (first.body, first.etag, first.cache_control) == (jwks("old"), '"1"', "max-age=600")
    unchanged = await guarded.fetch(etag='"1"')
    assert (unchanged.body, unchanged.etag) == (None, '"1"')


@pytest.mark.parametrize("status", [204, 301, 304, 404, 500])
async def test_status_other_than_200_is_an_error(issuer: Issuer, status: int) -> None:
    issuer.status = status
    issuer.headers = {"Location": URL + "?elsewhere"}
    with pytest.raises(FetchError, match=f"status is {status}"):
        await Guarded(issuer).fetch()
    assert issuer.requests == 1


async def test_body_over_the_limit_is_an_error(issuer: Issuer) -> None:
    issuer.body = b" " * (MAX_BODY_BYTES + 1)
    with pytest.raises(FetchError, match="more than"):
        await Guarded(issuer).fetch()


async def test_incomplete_response_times_out(issuer: Issuer) -> None:
    issuer.body = None
    guarded = Guarded(issuer)
    fetching = guarded.fetch()
    guarded.clock.advance(TIME_LIMIT)
    with pytest.raises(FetchError, match="no complete response within"):
        await fetching


async def test_unresponsive_issuer_times_out(reactor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
    monkeypatch.setattr(published_keys, "TIME_LIMIT", 0.1)
    try:
        with pytest.raises(FetchError, match="no complete response within"):
            await fetcher(reactor)(f"http://127.0.0.1:{port.getHost().port}/", None)
    finally:
        await port.stopListening()


async def test_refused_connection_is_an_error(reactor: Any) -> None:
    port = reactor.listenTCP(0, Site(Resource()), interface="127.0.0.1")
    number = port.getHost().port
    await port.stopListening()
    with pytest.raises(FetchError, match="refused"):
        await fetcher(reactor)(f"http://127.0.0.1:{number}/", None)


async def test_keys_are_fetched_over_a_socket(reactor: Any, issuer: Issuer) -> None:
    port = reactor.listenTCP(0, Site(issuer), interface="127.0.0.1")
    try:
        fetched = await fetcher(reactor)(f"http://127.0.0.1:{port.getHost().port}/jwks.json", None)
    finally:
        await port.stopListening()
    assert fetched.body == jwks("old")


async def test_stop_cancels_a_running_fetch(issuer: Issuer) -> None:
    issuer.body = None
    guarded = Guarded(issuer)
    started = Deferred.fromCoroutine(guarded.keys.start())
    guarded.keys.stop()
    await started
