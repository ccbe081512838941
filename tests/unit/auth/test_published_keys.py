"""Refresh of published keys. The old keys are used until the new keys arrive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from dataapi.auth import keys, published_keys
from dataapi.auth.published_keys import FetchedKeySet, FetchError, PublishedKeys, freshness
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm
from support.deferreds import outcome
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twisted.logger import LogEvent

URL = "https://issuer.example.org/keys?token=not-for-logs"
# The key is fixed because PyJWT 2.9 omits a key's leading zeros and then rejects the key.
PRIVATE = ec.derive_private_key(int.from_bytes(range(64, 96)), ec.SECP256R1())
PUBLIC = ECAlgorithm.to_jwk(PRIVATE.public_key(), as_dict=True)


def jwks(*kids: str) -> bytes:
    return json.dumps({"keys": [{**PUBLIC, "kid": kid} for kid in kids]}).encode()


class Issuer:
    """An issuer with scripted responses."""

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.etags: list[str | None] = []
        self.clock = Clock()
        self.key_ids: list[list[str | None]] = []
        self.keys = PublishedKeys(URL, self.fetch, self.use, self.clock)

    def use(self, verifying_keys: tuple[keys.VerifyingKey, ...]) -> None:
        """Record the IDs of the keys."""
        self.key_ids.append([key.kid for key in verifying_keys])

    async def fetch(self, url: str, etag: str | None) -> FetchedKeySet:
        """Return the next response. The last response is repeated."""
        assert url == URL
        self.etags.append(etag)
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, Exception):
            raise response
        if isinstance(response, Deferred):
            response = await response
        return response if isinstance(response, FetchedKeySet) else FetchedKeySet(response, None, "")

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.keys.start())

    def refresh(self) -> Deferred[None]:
        """Refresh the keys as after a token with an unknown key ID."""
        return Deferred.fromCoroutine(self.keys.refresh())

    def reread(self) -> Deferred[str | None]:
        """Refresh the keys as during a reload of the daemon."""
        return Deferred.fromCoroutine(self.keys.reread())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    messages: list[str] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_namespace") == "dataapi.auth":
            messages.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    yield messages
    globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 3600), ("no-cache", 3600), ("max-age=900", 900), ("public, max-age=1200, immutable", 1200),
        ("max-age=0", 300), ("max-age=999999", 86_400), ('Max-Age = "600"', 600), ("s-maxage=700", 3600),
    ],
)  # fmt: skip
def test_issuer_decides_freshness_within_bounds(header: str, seconds: float) -> None:
    assert freshness(header) == seconds


@given(st.text())
def test_freshness_is_bounded_for_any_header(header: str) -> None:
    assert 300 <= freshness(header) <= 86_400


def test_keys_are_fetched_at_start_and_when_stale() -> None:
    issuer = Issuer(
        FetchedKeySet(jwks("a"), '"1"', "max-age=600"), FetchedKeySet(jwks("b"), '"2"', "max-age=900")
    )
    assert issuer.start().called
    issuer.clock.advance(599)
    assert (issuer.key_ids, issuer.etags) == ([["a"]], [None])
    issuer.clock.advance(1)
    assert (issuer.key_ids, issuer.etags) == ([["a"], ["b"]], [None, '"1"'])
    issuer.keys.stop()
    assert not issuer.clock.getDelayedCalls()


def test_unchanged_key_set_is_not_applied_again() -> None:
    issuer = Issuer(
        FetchedKeySet(jwks("a"), '"1"', ""),
        FetchedKeySet(None, '"1"', "max-age=300"),
        FetchedKeySet(jwks("a"), '"1"', ""),
    )
    issuer.start()
    issuer.clock.advance(3600)
    issuer.clock.advance(300)
    assert (len(issuer.etags), issuer.key_ids) == (3, [["a"]])
    issuer.keys.stop()


@pytest.mark.parametrize(
    "problem", [FetchError("refused"), b"no json", b"[]", b"{}", b'{"keys": [{"kty": "secret-material"}]}']
)
def test_old_keys_remain_valid_while_the_issuer_fails(problem: Any, logged: list[str]) -> None:
    """The fetch is retried with backoff. Neither keys nor the URL's query string are logged."""
    issuer = Issuer(jwks("a"), problem, problem, jwks("b"))
    issuer.start()
    issuer.clock.advance(3600)
    assert issuer.key_ids == [["a"]]
    issuer.clock.advance(published_keys.FIRST_RETRY)
    issuer.clock.advance(2 * published_keys.FIRST_RETRY - 1)
    assert (len(issuer.etags), issuer.key_ids) == (3, [["a"]])
    issuer.clock.advance(1)
    assert issuer.key_ids == [["a"], ["b"]]
    issuer.keys.stop()
    text = "\n".join(logged)
    assert text.count("could not read the keys") == 2
    assert "secret-material" not in text
    assert "not-for-logs" not in text
    assert PUBLIC["x"] not in text


def test_retry_delay_is_bounded() -> None:
    issuer = Issuer(FetchError("refused"))
    issuer.start()
    for _ in range(20):
        [call] = issuer.clock.getDelayedCalls()
        assert call.getTime() - issuer.clock.seconds() <= published_keys.LAST_RETRY
        issuer.clock.advance(published_keys.LAST_RETRY)
    issuer.keys.stop()


def test_unknown_key_id_refreshes_the_set_with_a_limited_rate() -> None:
    issuer = Issuer(jwks("a"), jwks("a", "b"), jwks("c"))
    issuer.start()
    assert issuer.refresh().called, "the key set was fetched a moment ago"
    assert issuer.key_ids == [["a"]]
    issuer.clock.advance(published_keys.MIN_REFRESH_INTERVAL)
    for _ in range(100):
        assert issuer.refresh().called
    assert issuer.key_ids == [["a"], ["a", "b"]]
    issuer.clock.advance(published_keys.MIN_REFRESH_INTERVAL)
    issuer.refresh()
    assert issuer.key_ids[-1] == ["c"]
    issuer.keys.stop()


def test_concurrent_requests_share_one_refresh() -> None:
    response: Deferred[bytes] = Deferred()
    issuer = Issuer(jwks("a"), response)
    issuer.start()
    issuer.clock.advance(published_keys.MIN_REFRESH_INTERVAL)
    waiting = [issuer.refresh() for _ in range(3)]
    waiting[0].addErrback(lambda _: None)
    waiting[0].cancel()
    assert not any(one.called for one in waiting[1:])
    response.callback(jwks("b"))
    assert all(one.called for one in waiting)
    assert (len(issuer.etags), issuer.key_ids) == (2, [["a"], ["b"]])
    issuer.keys.stop()


def test_unexpected_error_is_logged_and_retried(logged: list[str]) -> None:
    issuer = Issuer(ZeroDivisionError(), jwks("a"))
    assert issuer.start().called
    assert logged == ["could not read the keys at https://issuer.example.org/keys, retrying in 5 s"]
    issuer.clock.advance(published_keys.FIRST_RETRY)
    assert issuer.key_ids == [["a"]]
    issuer.keys.stop()


@pytest.mark.parametrize("error", [None, FetchError("cancelled")])
def test_stop_cancels_a_running_fetch(error: FetchError | None, logged: list[str]) -> None:
    response: Deferred[bytes] = Deferred(lambda response: response.errback(error) if error else None)
    issuer = Issuer(response)
    started = issuer.start()
    issuer.keys.stop()
    assert started.called
    assert issuer.key_ids == []
    assert not issuer.clock.getDelayedCalls()
    assert issuer.refresh().called
    assert len(issuer.etags) == 1
    assert logged == []


def test_unusable_published_keys_are_ignored() -> None:
    odd = [
        {"kty": "new"},
        {"kty": ["EC"]},
        {"kty": "EC", "crv": ["P-256"]},
        {**PUBLIC, "x": 5},
        {"kty": "oct", "k": "c2VjcmV0" * 8},
        {**PUBLIC, "use": "enc"},
        5,
        PUBLIC,
    ]
    parsed = keys.parse_published(json.dumps({"keys": odd}).encode())
    assert [key.algorithms for key in parsed] == [("ES256",)]


def test_uppercase_url_is_a_url() -> None:
    assert keys.is_url("HTTPS://ISSUER.EXAMPLE.ORG/KEYS")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://issuer.example.org/.well-known/jwks.json", True),
        ("https://issuer.example.org:8443/keys?tenant=1", True),
        ("http://localhost:9000/keys", True),
        ("http://127.0.0.1/keys", True),
        ("http://[::1]:80/keys", True),
        ("http://issuer.example.org/keys", False),
        ("http://127.0.0.1.example.org/keys", False),
        ("https://user:password@issuer.example.org/keys", False),
        ("https://", False),
        ("https://issuer.example.org:port/", False),
        ("https://[::1/", False),
        ("https://schlüssel.example.org/", False),
    ],
)
def test_keys_are_fetched_over_https_or_from_localhost(url: str, allowed: bool) -> None:
    assert keys.is_url(url)
    if allowed:
        keys.check_key_url(url)
    else:
        with pytest.raises(ValueError, match="is no"):
            keys.check_key_url(url)


def test_reload_fetches_keys_even_if_fresh() -> None:
    slow: Deferred[bytes] = Deferred()
    issuer = Issuer(jwks("a"), slow, jwks("b"), FetchError("no route"))
    issuer.start()
    issuer.clock.advance(3600)
    reread = issuer.reread()
    assert len(issuer.etags) == 2
    slow.callback(jwks("a"))
    assert outcome(reread) is None
    assert issuer.key_ids == [["a"], ["b"]]
    assert outcome(issuer.reread()) == "no route"
    assert issuer.key_ids == [["a"], ["b"]]
    issuer.keys.stop()
    assert outcome(issuer.reread()) is None
    assert len(issuer.etags) == 4
