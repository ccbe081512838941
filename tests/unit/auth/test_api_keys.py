"""API keys that the daemon signs or generates."""

from __future__ import annotations

import json
import secrets
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from dataapi.auth.authenticator import Authenticator
from dataapi.auth.keys import (
    API_KEY_LIFETIME,
    CannotSign,
    new_publishable_key,
    new_secret,
    new_secret_key,
    sign,
)
from dataapi.http.messages import Request
from dataapi.settings import Project
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000
SECRET = "not-so-secret-but-long-enough-32"
# The key is fixed because PyJWT 2.9 omits a key's leading zeros and then rejects the key.
EC_KEY = ec.derive_private_key(int.from_bytes(range(64, 96)), ec.SECP256R1())


def project(**named: Any) -> Project:
    return Project("a" * 20, "acme", "host=nowhere", **{"jwt_secret": SECRET, **named})


def admitted_role(of: Project, key: str, now: float = NOW) -> str:
    request = Request("id", "GET", "/rest/v1/", "", {"apikey": key}, b"")
    return Authenticator(of, lambda: now).caller_of(request).role


@pytest.mark.parametrize("role", ["anon", "service_role"])
def test_signed_key_is_accepted_for_its_role(role: str) -> None:
    for of in (project(), project(jwt_aud="api"), project(jwt_role_claim_key='."x y".roles[2]')):
        assert admitted_role(of, sign(of, role, NOW)) == role


def test_base64_secret_signs_with_its_decoded_bytes() -> None:
    of = project(jwt_secret="_" * 44, jwt_secret_is_base64=True)
    assert admitted_role(of, sign(of, "anon", NOW)) == "anon"


def test_signing_fails_with_published_keys() -> None:
    with pytest.raises(CannotSign, match="Have the issuer sign tokens"):
        sign(project(jwt_secret="https://issuer.example.org/jwks.json"), "anon", NOW)


def test_signed_key_expires_after_its_lifetime() -> None:
    claims = jwt.decode(sign(project(), "anon", NOW), options={"verify_signature": False})
    assert claims == {
        "iss": "dataapi",
        "ref": "a" * 20,
        "role": "anon",
        "iat": NOW,
        "exp": NOW + API_KEY_LIFETIME,
    }
    assert jwt.decode(sign(project(), "anon", 0, 60), options={"verify_signature": False})["exp"] == 60


def test_private_jwk_signs_and_sets_key_id() -> None:
    private = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY))
    public = {name: value for name, value in private.items() if name != "d"}
    of = project(jwt_secret=json.dumps({"keys": [{**public, "kid": "one"}, {**private, "kid": "two"}]}))
    key = sign(of, "anon", NOW)
    assert jwt.get_unverified_header(key) == {"alg": "ES256", "kid": "two", "typ": "JWT"}
    assert admitted_role(of, key) == "anon"

    with pytest.raises(CannotSign, match="only public keys"):
        sign(project(jwt_secret=json.dumps(public)), "anon", NOW)


def test_signing_fails_without_secret() -> None:
    with pytest.raises(CannotSign, match="no jwt-secret is configured"):
        sign(project(jwt_secret=None), "anon", NOW)


@pytest.mark.parametrize("path", [".roles[1000000]", '.roles[?(@ == "other")]', "$[0]", "$.a[?@.b]"])
def test_role_path_that_no_claims_match_is_rejected(path: str) -> None:
    with pytest.raises(CannotSign, match="selects anon"):
        sign(project(jwt_role_claim_key=path), "anon", NOW)


@given(st.lists(st.sampled_from([".a", '."b c"', "[0]", "[3]"]), max_size=5))
def test_signed_role_is_readable_at_the_role_path(steps: list[str]) -> None:
    of = project(jwt_role_claim_key=".x" + "".join(steps))
    assert admitted_role(of, sign(of, "service_role", NOW)) == "service_role"


@pytest.mark.parametrize(
    "path", ["$.role", "$..role", "$.app.roles[*]", "$.roles[?search(@, '^service_')]", "$['a b'][-2].c"]
)
def test_signed_role_is_readable_at_a_jsonpath(path: str) -> None:
    of = project(jwt_role_claim_key=path)
    assert admitted_role(of, sign(of, "service_role", NOW)) == "service_role"


def test_opaque_keys_are_prefixed_and_unique() -> None:
    """Clients recognize the prefixes. Generated JWT secrets are long enough for HS256."""
    assert new_publishable_key(secrets.token_urlsafe).startswith("sb_publishable_")
    assert new_secret_key(secrets.token_urlsafe).startswith("sb_secret_")
    assert (
        len(
            {
                make(secrets.token_urlsafe)
                for make in (new_publishable_key, new_secret_key, new_secret)
                for _ in range(9)
            }
        )
        == 27
    )
    assert len(new_secret(secrets.token_urlsafe)) >= 32
