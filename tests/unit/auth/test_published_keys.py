"""When published keys are read again, and what becomes of the old ones meanwhile."""

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
# Not by chance: PyJWT 2.9 writes no leading zeros of a key, and reads none that lacks them.
PRIVATE = ec.derive_private_key(int.from_bytes(range(64, 96)), ec.SECP256R1())
PUBLIC = ECAlgorithm.to_jwk(PRIVATE.public_key(), as_dict=True)


def jwks(*kids: str) -> bytes:
    return json.dumps({"keys": [{**PUBLIC, "kid": kid} for kid in kids]}).encode()


class Issuer:
    """Answers as it is told, or leaves the caller waiting."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str | None] = []
        self.clock = Clock()
        self.used: list[list[str | None]] = []
        self.keys = PublishedKeys(URL, self.fetch, self.use, self.clock)

    def use(self, found: tuple[keys.VerifyingKey, ...]) -> None:
        """Note the keys that are to be used."""
        self.used.append([key.kid for key in found])

    async def fetch(self, url: str, etag: str | None) -> FetchedKeySet:
        """Give the next answer, the last one again and again."""
        assert url == URL
        self.asked.append(etag)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Deferred):
            answer = await answer
        return answer if isinstance(answer, FetchedKeySet) else FetchedKeySet(answer, None, "")

    def start(self) -> Deferred[None]:
        """Begin."""
        return Deferred.fromCoroutine(self.keys.start())

    def refresh(self) -> Deferred[None]:
        """Meet a token with an unknown key."""
        return Deferred.fromCoroutine(self.keys.refresh())

    def reread(self) -> Deferred[str | None]:
        """Reload."""
        return Deferred.fromCoroutine(self.keys.reread())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Collect what is logged, as text."""
    found: list[str] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_namespace") == "dataapi.auth":
            found.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    yield found
    globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 3600), ("no-cache", 3600), ("max-age=900", 900), ("public, max-age=1200, immutable", 1200),
        ("max-age=0", 300), ("max-age=999999", 86_400), ('Max-Age = "600"', 600), ("s-maxage=700", 3600),
    ],
)  # fmt: skip
def test_the_issuer_says_how_long_its_keys_are_fresh_within_bounds(header: str, seconds: float) -> None:
    assert freshness(header) == seconds


@given(st.text())
def test_whatever_it_says_the_bounds_hold(header: str) -> None:
    assert 300 <= freshness(header) <= 86_400


def test_keys_are_read_at_start_and_again_when_they_are_stale() -> None:
    issuer = Issuer(
        FetchedKeySet(jwks("a"), '"1"', "max-age=600"), FetchedKeySet(jwks("b"), '"2"', "max-age=900")
    )
    assert issuer.start().called
    issuer.clock.advance(599)
    assert (issuer.used, issuer.asked) == ([["a"]], [None])
    issuer.clock.advance(1)
    assert (issuer.used, issuer.asked) == ([["a"], ["b"]], [None, '"1"'])
    issuer.keys.stop()
    assert not issuer.clock.getDelayedCalls()


def test_an_unchanged_set_is_not_used_again() -> None:
    """Verified tokens are forgotten with the keys, so nothing is forgotten in vain."""
    issuer = Issuer(
        FetchedKeySet(jwks("a"), '"1"', ""),
        FetchedKeySet(None, '"1"', "max-age=300"),
        FetchedKeySet(jwks("a"), '"1"', ""),
    )
    issuer.start()
    issuer.clock.advance(3600)
    issuer.clock.advance(300)
    assert (len(issuer.asked), issuer.used) == (3, [["a"]])
    issuer.keys.stop()


@pytest.mark.parametrize(
    "problem", [FetchError("refused"), b"no json", b"[]", b"{}", b'{"keys": [{"kty": "secret-material"}]}']
)
def test_old_keys_serve_on_while_the_issuer_fails(problem: Any, logged: list[str]) -> None:
    """It is asked again soon, then less often, and nothing of keys or the URL's query is logged."""
    issuer = Issuer(jwks("a"), problem, problem, jwks("b"))
    issuer.start()
    issuer.clock.advance(3600)
    assert issuer.used == [["a"]]
    issuer.clock.advance(published_keys.FIRST_RETRY)
    issuer.clock.advance(2 * published_keys.FIRST_RETRY - 1)
    assert (len(issuer.asked), issuer.used) == (3, [["a"]])
    issuer.clock.advance(1)
    assert issuer.used == [["a"], ["b"]]
    issuer.keys.stop()
    told = "\n".join(logged)
    assert told.count("could not read the keys") == 2
    assert "secret-material" not in told
    assert "not-for-logs" not in told
    assert PUBLIC["x"] not in told


def test_the_waits_between_failures_are_bounded() -> None:
    issuer = Issuer(FetchError("refused"))
    issuer.start()
    for _ in range(20):
        [call] = issuer.clock.getDelayedCalls()
        assert call.getTime() - issuer.clock.seconds() <= published_keys.LAST_RETRY
        issuer.clock.advance(published_keys.LAST_RETRY)
    issuer.keys.stop()


def test_an_unknown_key_makes_the_set_be_read_again_but_not_often() -> None:
    issuer = Issuer(jwks("a"), jwks("a", "b"), jwks("c"))
    issuer.start()
    assert issuer.refresh().called, "it was read just now"
    assert issuer.used == [["a"]]
    issuer.clock.advance(published_keys.MIN_REFRESH_INTERVAL)
    for _ in range(100):
        assert issuer.refresh().called
    assert issuer.used == [["a"], ["a", "b"]]
    issuer.clock.advance(published_keys.MIN_REFRESH_INTERVAL)
    issuer.refresh()
    assert issuer.used[-1] == ["c"]
    issuer.keys.stop()


def test_those_who_need_a_key_wait_for_one_reading() -> None:
    answer: Deferred[bytes] = Deferred()
    issuer = Issuer(jwks("a"), answer)
    issuer.start()
    issuer.clock.advance(published_keys.MIN_REFRESH_INTERVAL)
    waiting = [issuer.refresh() for _ in range(3)]
    waiting[0].addErrback(lambda _: None)
    waiting[0].cancel()
    assert not any(one.called for one in waiting[1:])
    answer.callback(jwks("b"))
    assert all(one.called for one in waiting)
    assert (len(issuer.asked), issuer.used) == (2, [["a"], ["b"]])
    issuer.keys.stop()


def test_an_unexpected_failure_is_logged_and_tried_again(logged: list[str]) -> None:
    """A mistake in reading keys does not end the reading of keys."""
    issuer = Issuer(ZeroDivisionError(), jwks("a"))
    assert issuer.start().called
    assert logged == ["could not read the keys at https://issuer.example.org/keys, retrying in 5 s"]
    issuer.clock.advance(published_keys.FIRST_RETRY)
    assert issuer.used == [["a"]]
    issuer.keys.stop()


@pytest.mark.parametrize("told", [None, FetchError("cancelled")])
def test_stopping_ends_a_reading_on_its_way(told: FetchError | None, logged: list[str]) -> None:
    """Some clients tell of it by an error of their own."""
    answer: Deferred[bytes] = Deferred(lambda answer: answer.errback(told) if told else None)
    issuer = Issuer(answer)
    started = issuer.start()
    issuer.keys.stop()
    assert started.called
    assert issuer.used == []
    assert not issuer.clock.getDelayedCalls()
    assert issuer.refresh().called
    assert len(issuer.asked) == 1
    assert logged == []


def test_a_published_set_leaves_out_what_is_of_no_use() -> None:
    """An issuer may publish keys of kinds unknown here; a secret that is published is no secret."""
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
    found = keys.parse_published(json.dumps({"keys": odd}).encode())
    assert [key.algorithms for key in found] == [("ES256",)]


def test_an_address_in_capitals_is_no_secret() -> None:
    """Who can read the address could sign with it."""
    assert keys.is_url("HTTPS://ISSUER.EXAMPLE.ORG/KEYS")


@pytest.mark.parametrize(
    ("url", "good"),
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
def test_keys_are_read_over_https_or_from_this_machine(url: str, good: bool) -> None:
    assert keys.is_url(url)
    if good:
        keys.check_key_url(url)
    else:
        with pytest.raises(ValueError, match="is no"):
            keys.check_key_url(url)


def test_a_reload_reads_them_however_lately_they_were_read() -> None:
    """Not even a reading that began before is enough, as its answer may be older than the change."""
    slow: Deferred[bytes] = Deferred()
    issuer = Issuer(jwks("a"), slow, jwks("b"), FetchError("no route"))
    issuer.start()
    issuer.clock.advance(3600)
    reread = issuer.reread()
    assert len(issuer.asked) == 2
    slow.callback(jwks("a"))
    assert outcome(reread) is None
    assert issuer.used == [["a"], ["b"]]
    assert outcome(issuer.reread()) == "no route"
    assert issuer.used == [["a"], ["b"]]
    issuer.keys.stop()
    assert outcome(issuer.reread()) is None
    assert len(issuer.asked) == 4
