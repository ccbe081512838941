"""Encrypted secrets, tokens and identifiers of webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from dataapi.webhooks import identifiers
from dataapi.webhooks.model import Permission, Token
from dataapi.webhooks.secrets import CannotOpen, Cipher, NoEncryptionKey, new_key, read_key
from dataapi.webhooks.store.directory import PREFIX, digest, new_token
from hypothesis import given
from hypothesis import strategies as st
from support.webhooks import made_at

KEYS = [new_key() for _ in range(3)]
MICROSECONDS = st.integers(0, 2**48 * 1000 - 1)
RANDOM = st.integers(0, 2**62 - 1)


@given(st.binary(max_size=300), st.text(max_size=40))
def test_sealed_secret_opens_in_its_context(secret: bytes, context: str) -> None:
    cipher = Cipher(KEYS[:1])
    sealed = cipher.seal(secret, context)
    assert cipher.open(sealed, context) == secret
    assert len(secret) < 4 or secret not in sealed


@given(st.binary(min_size=1, max_size=40), st.data())
def test_modified_sealed_secret_does_not_open(secret: bytes, data: st.DataObject) -> None:
    sealed = Cipher(KEYS[:1]).seal(secret, "here")
    at = data.draw(st.integers(0, len(sealed) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = sealed[:at] + bytes([sealed[at] ^ bit]) + sealed[at + 1 :]
    for wrong in (changed, sealed[:at]):
        with pytest.raises(CannotOpen):
            Cipher(KEYS[:1]).open(wrong, "here")


def test_sealed_secret_does_not_open_in_another_context() -> None:
    cipher = Cipher(KEYS[:1])
    with pytest.raises(CannotOpen):
        cipher.open(cipher.seal(b"secret", "here"), "there")


def test_keys_are_rotated_by_putting_a_new_one_first() -> None:
    old = Cipher([KEYS[0]]).seal(b"secret", "here")
    rotated = Cipher([KEYS[1], KEYS[0]])
    assert rotated.open(old, "here") == b"secret"
    with pytest.raises(CannotOpen):
        Cipher([KEYS[0]]).open(rotated.seal(b"secret", "here"), "here")


def test_same_secret_is_sealed_differently_each_time() -> None:
    cipher = Cipher(KEYS[:1])
    assert cipher.seal(b"secret", "here") != cipher.seal(b"secret", "here")


def test_nothing_is_sealed_without_a_key() -> None:
    with pytest.raises(NoEncryptionKey, match=r"\[webhooks\] encryption-key .* dataapi keys"):
        Cipher([]).seal(b"secret", "here")
    with pytest.raises(CannotOpen):
        Cipher([]).open(Cipher(KEYS[:1]).seal(b"secret", "here"), "here")


@pytest.mark.parametrize(
    ("text", "message"), [("", "0 bytes"), ("c2hvcnQ=", "5 bytes"), ("!" * 44, "not base64")]
)
def test_malformed_keys_are_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_key(text)
    assert len(read_key(new_key())) == 32


def test_tokens_are_random_and_stored_as_hashes() -> None:
    first, second = new_token(), new_token()
    assert first != second
    assert first.startswith(PREFIX)
    assert len(first) >= len(PREFIX) + 43
    assert len(digest(first)) == 32
    assert digest(first) == digest(first) != digest(second)


def test_token_is_usable_until_it_expires_or_is_revoked() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = now + timedelta(seconds=1)

    def token(expires: datetime | None, revoked: datetime | None) -> Token:
        return Token(UUID(int=0), "acme", frozenset({Permission.READ}), now, expires, revoked)

    assert token(None, None).is_valid(now)
    assert token(later, None).is_valid(now)
    assert not token(now, None).is_valid(now)
    assert not token(None, now).is_valid(now)


@given(MICROSECONDS, RANDOM)
def test_identifier_is_a_uuid_of_version_7(microseconds: int, random: int) -> None:
    """RFC 9562: version, variant and time in milliseconds."""
    made = identifiers.uuid_v7(microseconds, random)
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert made.int >> 80 == microseconds // 1000


@given(MICROSECONDS, MICROSECONDS, RANDOM, RANDOM)
def test_identifiers_sort_by_creation_time(first: int, second: int, one: int, two: int) -> None:
    if first < second:
        assert identifiers.uuid_v7(first, one) < identifiers.uuid_v7(second, two)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)), RANDOM)
def test_uuid_floor_separates_identifiers_from_earlier_ones(moment: datetime, random: int) -> None:
    microseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    made = identifiers.uuid_v7(microseconds, random)
    assert identifiers.uuid_floor(moment) <= made
    assert made_at(made) <= moment < made_at(made) + timedelta(milliseconds=1)
    begin = microseconds // 1000 * 1000
    if begin:
        assert identifiers.uuid_v7(begin - 1, random) < identifiers.uuid_floor(moment)


@pytest.mark.parametrize(
    "text", ["", "1", "{01a1fe7d-2779-768f-9fe6-11d12301e463}", "01a1fe7d2779768f9fe611d12301e463"]
)
def test_noncanonical_identifiers_are_rejected(text: str) -> None:
    assert identifiers.parse(text) is None
    good = "01A1FE7D-2779-768F-9FE6-11D12301E463"
    assert identifiers.parse(good) == UUID(good)


def test_next_identifier_stops_at_the_latest() -> None:
    assert identifiers.next_identifier(identifiers.LATEST) == identifiers.LATEST
    assert identifiers.next_identifier(identifiers.EARLIEST) == UUID(int=1)
