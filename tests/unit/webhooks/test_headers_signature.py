"""Signatures and secrets (docs/reference/webhooks.md, Signing)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time

import pytest
from dataapi.webhooks.delivery.headers import InvalidSecret, check_secret, hmac_key, sign, verify
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ASCII = st.text(st.characters(min_codepoint=0, max_codepoint=127), min_size=8, max_size=64)


def test_signature_matches_the_published_test_vector() -> None:
    signature = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("whsec_MDEyMzQ1Njc=", b"01234567"),
        ("whsec_MDEyMzQ1Njc", b"01234567"),
        ("whsec_+/+/", b"\xfb\xff\xbf"),
        ("whsec_-_-_", b"whsec_-_-_"),  # base64url
        ("whsec_MDEyMzQ1Njc==", b"whsec_MDEyMzQ1Njc=="),  # too much padding
        ("whsec_MDEyMzQ1N", b"whsec_MDEyMzQ1N"),  # invalid base64 length
        ("whsec_MDEy MzQ1", b"whsec_MDEy MzQ1"),
        ("whsec_MDEyMzQ1\n", b"whsec_MDEyMzQ1\n"),
        ("whsec_MDE=MDE=", b"whsec_MDE=MDE="),
        ("whsec_MDEyMzQ1Njd", b"whsec_MDEyMzQ1Njd"),  # unused bits are not zero
        ("whsec_==", b"whsec_=="),
        ("whsec_", b"whsec_"),
        ("WHSEC_MDEyMzQ1Njc=", b"WHSEC_MDEyMzQ1Njc="),
        ("MDEyMzQ1Njc=", b"MDEyMzQ1Njc="),
        ("plain secret", b"plain secret"),
    ],
)
def test_only_prefixed_strict_base64_is_decoded(secret: str, key: bytes) -> None:
    assert hmac_key(secret) == key


@pytest.mark.parametrize(
    "secret", ["", "1234567", "x" * 65, "pässword1", "\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18"]
)
def test_secrets_with_invalid_length_or_characters_are_rejected(secret: str) -> None:
    with pytest.raises(InvalidSecret) as refused:
        check_secret(secret)
    assert not secret or secret not in str(refused.value)


@pytest.mark.parametrize("length", [8, 64])
def test_secrets_of_8_to_64_characters_are_accepted(length: int) -> None:
    check_secret("x" * length)


@given(ASCII, st.uuids().map(str), st.integers(0, 2**33), st.binary())
def test_signature_covers_id_timestamp_and_raw_body(secret: str, event: str, now: int, body: bytes) -> None:
    expected = hmac.new(hmac_key(secret), f"{event}.{now}.".encode() + body, hashlib.sha256).digest()
    signature = sign(secret, event, now, body)
    assert signature == "v1," + base64.b64encode(expected).decode()
    assert verify(secret, event, now, body, signature)
    assert verify(secret, event, now, body, f"v1,AAAA v2,ü {signature}")
    assert not verify(secret, event, now, body + b" ", signature)
    assert not verify(secret, event, now + 1, body, signature)
    assert not verify(secret, event + "0", now, body, signature)
    assert not verify(secret + "x", event, now, body, signature)
    assert not verify(secret, event, now, body, "")


@given(st.binary(min_size=6, max_size=43), st.booleans(), st.text())
def test_standard_webhooks_library_accepts_the_signature(key: bytes, padded: bool, text: str) -> None:
    encoded = base64.b64encode(key).decode()
    secret = "whsec_" + (encoded if padded else encoded.rstrip("="))
    now, body = int(time.time()), text.encode("utf-8", "surrogatepass" if text.isascii() else "replace")
    headers = {"webhook-id": "evt", "webhook-timestamp": str(now)}
    headers["webhook-signature"] = sign(secret, "evt", now, body)
    Webhook(secret).verify(body, headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + b"x", headers, json_parse=False)
