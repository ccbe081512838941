"""Keys of an issuer: fetched over HTTP, asked for again when a token needs it, bounded."""

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
# Not by chance: PyJWT 2.9 writes no leading zeros of a key, and reads none that lacks them.
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
    """Publishes keys, as the test sets it."""

    isLeaf = True  # noqa: N815 - twisted's name

    def __init__(self) -> None:
        super().__init__()
        self.body: bytes | None = jwks("old")
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0

    def render_GET(self, request: Any) -> Any:  # noqa: N802 - twisted's name
        """Answer; without a body, begin to and never end."""
        self.asked += 1
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
    """An authenticator with the keys of an issuer, in memory; time passes when the test says so."""

    def __init__(self, issuer: Issuer) -> None:
        self.clock = Clock()
        self._agent = RequestTraversalAgent(issuer)
        self._fetch = fetcher(self.clock, self._agent)
        self.authenticator = Authenticator(replace(PROJECT, jwt_secret=URL), lambda: NOW)
        self.keys = PublishedKeys(URL, self.fetch, self.authenticator.use_keys, self.clock)
        self.authenticator.on_unknown_key(self.keys.refresh)

    def fetch(self, url: str = URL, etag: str | None = None) -> Deferred[FetchedKeySet]:
        """Fetch as the daemon does, with all that is answered already."""
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
    """Give an issuer."""
    return Issuer()


async def test_a_token_of_a_published_key_is_good(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    await guarded.keys.start()
    assert await guarded.role(token("old")) == "authenticated"
    assert await guarded.role(None, token("old", role="anon")) == "anon", "as an API key too"
    assert await guarded.role(None) == "anon"
    guarded.keys.stop()


async def test_a_key_that_was_published_since_is_found_by_the_first_token_that_needs_it(
    issuer: Issuer,
) -> None:
    guarded = Guarded(issuer)
    await guarded.keys.start()
    issuer.body = jwks("new")
    for bearer, apikey in ((token("new"), KEY), (None, token("new"))):
        with pytest.raises((TokenError, GatewayError)) as refused:
            await guarded.role(bearer, apikey)
        assert refused.value.status == 401, "the keys were read just now"
    guarded.clock.advance(MIN_REFRESH_INTERVAL)
    assert await guarded.role(None, token("new")) == "authenticated"
    assert issuer.asked == 2
    with pytest.raises(TokenError, match="No suitable key"):
        await guarded.role(token("old"))
    guarded.keys.stop()


async def test_tokens_of_a_withdrawn_key_are_refused_although_they_were_verified_before(
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


async def test_until_the_keys_were_read_tokens_are_503_and_opaque_keys_good(
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


async def test_an_unchanged_set_is_304(issuer: Issuer) -> None:
    issuer.headers = {"ETag": '"1"', "Cache-Control": "max-age=600"}
    guarded = Guarded(issuer)
    first = await guarded.fetch()
    assert (first.body, first.etag, first.cache_control) == (jwks("old"), '"1"', "max-age=600")
    again = await guarded.fetch(etag='"1"')
    assert (again.body, again.etag) == (None, '"1"')


@pytest.mark.parametrize("status", [204, 301, 304, 404, 500])
async def test_another_status_than_200_is_a_failure(issuer: Issuer, status: int) -> None:
    """A redirection is one: only the operator says where keys come from."""
    issuer.status = status
    issuer.headers = {"Location": URL + "?elsewhere"}
    with pytest.raises(FetchError, match=f"status is {status}"):
        await Guarded(issuer).fetch()
    assert issuer.asked == 1


async def test_a_body_without_end_is_cut_off(issuer: Issuer) -> None:
    issuer.body = b" " * (MAX_BODY_BYTES + 1)
    with pytest.raises(FetchError, match="more than"):
        await Guarded(issuer).fetch()


async def test_an_issuer_that_does_not_end_its_answer_is_given_up(issuer: Issuer) -> None:
    issuer.body = None
    guarded = Guarded(issuer)
    fetching = guarded.fetch()
    guarded.clock.advance(TIME_LIMIT)
    with pytest.raises(FetchError, match="no complete response within"):
        await fetching


async def test_an_issuer_that_says_nothing_is_given_up(reactor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the agent that connects."""
    port = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
    monkeypatch.setattr(published_keys, "TIME_LIMIT", 0.1)
    try:
        with pytest.raises(FetchError, match="no complete response within"):
            await fetcher(reactor)(f"http://127.0.0.1:{port.getHost().port}/", None)
    finally:
        await port.stopListening()


async def test_a_server_that_is_not_there_is_a_failure(reactor: Any) -> None:
    """By the agent that connects."""
    port = reactor.listenTCP(0, Site(Resource()), interface="127.0.0.1")
    number = port.getHost().port
    await port.stopListening()
    with pytest.raises(FetchError, match="refused"):
        await fetcher(reactor)(f"http://127.0.0.1:{number}/", None)


async def test_keys_are_fetched_over_a_socket(reactor: Any, issuer: Issuer) -> None:
    """By the agent that connects, which leaves no connection behind."""
    port = reactor.listenTCP(0, Site(issuer), interface="127.0.0.1")
    try:
        fetched = await fetcher(reactor)(f"http://127.0.0.1:{port.getHost().port}/jwks.json", None)
    finally:
        await port.stopListening()
    assert fetched.body == jwks("old")


async def test_a_fetch_that_is_cancelled_ends(issuer: Issuer) -> None:
    issuer.body = None
    guarded = Guarded(issuer)
    started = Deferred.fromCoroutine(guarded.keys.start())
    guarded.keys.stop()
    await started
