"""Verification of tokens and their roles (docs/reference/rest.md, Roles and tokens)."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from dataapi.auth import keys
from dataapi.auth.jwt import TokenCache, Verified, Verifier
from dataapi.auth.role_path import (
    FilterStep,
    IndexStep,
    MemberStep,
    SliceStep,
    Step,
    StepPath,
    parse_role_path,
)
from dataapi.http.errors import TokenError
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRET = "a secret of at least thirty-two characters"
LONG_SECRET = SECRET * 2
NOW = 1_800_000_000.0


def verifier(secret: str = LONG_SECRET, audience: str | None = None, path: str = ".role") -> Verifier:
    return Verifier(keys.parse_keys(secret), audience, parse_role_path(path), "anon")


def check(token: str, now: float = NOW, **options: Any) -> Verified:
    return verifier(**options).verify(token, now)


def signed(claims: Any, key: Any = LONG_SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(claims, key, algorithm, headers=headers)


def raw(header: Any, payload: bytes, secret: str = LONG_SECRET) -> str:
    """Return a signed token with any header and payload."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    text = f"{part(json.dumps(header).encode())}.{part(payload)}"
    algorithm = jwt.algorithms.get_default_algorithms()["HS256"]
    return f"{text}.{part(algorithm.sign(text.encode(), secret.encode()))}"


def refusal(token: str, now: float = NOW, **options: Any) -> TokenError:
    with pytest.raises(TokenError) as raised:
        check(token, now, **options)
    error = raised.value
    challenge = f'Bearer error="invalid_token", error_description="{error.message}"'
    assert error.status == 401
    assert error.headers == (("WWW-Authenticate", challenge),)
    return error


RSA_KEY = rsa.generate_private_key(65537, 2048)
# The key is fixed because PyJWT 2.9 omits a key's leading zeros and then rejects the key.
EC_KEY = ec.derive_private_key(int.from_bytes(range(64, 96)), ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OCT = {"kty": "oct", "k": base64.urlsafe_b64encode(LONG_SECRET.encode()).rstrip(b"=").decode()}
SHORT_JWK = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2040).public_key(), as_dict=True)
RSA_JWK = RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True)
EC_JWK = ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True)
ED_JWK = OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True)


def jwks(*members: dict[str, Any]) -> str:
    return json.dumps({"keys": members})


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_text_secret_verifies_each_hmac_algorithm(algorithm: str) -> None:
    assert check(signed({"role": "r"}, algorithm=algorithm)).caller.role == "r"


@pytest.mark.parametrize(
    ("jwk", "key", "algorithm"),
    [
        (OCT, LONG_SECRET, "HS256"),
        (OCT, LONG_SECRET, "HS512"),
        (RSA_JWK, RSA_KEY, "RS256"),
        (RSA_JWK, RSA_KEY, "RS512"),
        (RSA_JWK, RSA_KEY, "PS384"),
        (RSAAlgorithm.to_jwk(RSA_KEY, as_dict=True), RSA_KEY, "RS256"),
        (EC_JWK, EC_KEY, "ES256"),
        (ECAlgorithm.to_jwk(EC_KEY, as_dict=True), EC_KEY, "ES256"),
        (ED_JWK, ED_KEY, "EdDSA"),
    ],
)
def test_each_kind_of_key_verifies_its_algorithms(jwk: dict[str, Any], key: Any, algorithm: str) -> None:
    token = signed({"role": "r"}, key, algorithm)
    assert check(token, secret=json.dumps(jwk)).caller.role == "r"
    assert check(token, secret=jwks(OCT, RSA_JWK, EC_JWK, ED_JWK)).caller.role == "r"


def test_rsa_public_key_does_not_verify_hmac() -> None:
    public = json.dumps(RSA_JWK)
    error = refusal(raw({"alg": "HS256"}, b'{"role":"service_role"}', public), secret=public)
    assert (error.code, error.message) == ("PGRST301", "No suitable key or wrong key type")
    assert error.details == "No suitable key was found to decode the JWT"


def test_alg_of_a_key_restricts_its_algorithms() -> None:
    secret = json.dumps({**OCT, "alg": "HS512"})
    assert check(signed({}, algorithm="HS512"), secret=secret).caller.role == "anon"
    assert refusal(signed({}, algorithm="HS256"), secret=secret).code == "PGRST301"


def test_unsigned_token_is_rejected() -> None:
    for token in (raw({"alg": "none"}, b"{}"), raw({"alg": "none"}, b"{}").rpartition(".")[0] + "."):
        error = refusal(token)
        assert (error.code, error.message) == ("PGRST301", "Wrong or unsupported encoding algorithm")
        assert error.details == "JWT is unsecured but expected 'alg' was not 'none'"


@pytest.mark.parametrize("algorithm", ["None", "HS1", None, 5, ["HS256"]])
def test_unknown_algorithms_are_rejected(algorithm: Any) -> None:
    error = refusal(raw({"alg": algorithm}, b"{}"))
    assert (error.code, error.message) == ("PGRST301", "Wrong or unsupported encoding algorithm")


def test_key_id_selects_the_key() -> None:
    first, second = {**OCT, "kid": "a"}, {**RSA_JWK, "kid": "b"}
    secret = jwks(first, second)
    assert check(signed({}, RSA_KEY, "RS256", kid="b"), secret=secret).caller.role == "anon"
    assert refusal(signed({}, RSA_KEY, "RS256", kid="a"), secret=secret).code == "PGRST301"
    assert refusal(signed({}, RSA_KEY, "RS256", kid="c"), secret=secret).code == "PGRST301"
    assert refusal(raw({"alg": "HS256", "kid": 7}, b"{}"), secret=secret).code == "PGRST301"


def test_key_without_id_verifies_no_token_with_a_key_id() -> None:
    """PostgREST also rejects such tokens."""
    assert check(signed({}, RSA_KEY, "RS256"), secret=jwks(RSA_JWK)).caller.role == "anon"
    assert refusal(signed({}, RSA_KEY, "RS256", kid="a"), secret=jwks(RSA_JWK)).code == "PGRST301"


def test_text_secret_verifies_tokens_with_any_key_id() -> None:
    assert check(signed({}, kid="whatever")).caller.role == "anon"


def test_encryption_keys_are_ignored() -> None:
    assert len(keys.parse_keys(jwks({**OCT, "use": "enc"}, RSA_JWK))) == 1
    with pytest.raises(ValueError, match="no key for signatures"):
        keys.parse_keys(jwks({**OCT, "use": "enc"}))


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("too short", "9 bytes, expected 32"),
        ('{"kty": "oct"', "not valid JSON"),
        ('{"keys": 5}', "not a list"),
        ('{"keys": []}', "no key for signatures"),
        ('{"keys": [5]}', "key 1 is not a JSON object"),
        ('{"kty": "XYZ"}', "kty of oct, RSA, EC or OKP"),
        ('{"kty": "EC", "crv": "P-1"}', "supported crv"),
        ('{"kty": "oct", "k": "AAAA"}', "3 bytes"),
        ('{"kty": "RSA", "n": "AQAB"}', "is not a valid key of type RSA"),
        (json.dumps({**OCT, "alg": "RS256"}), "alg RS256, expected one of HS256"),
        (json.dumps({**OCT, "kid": 5}), "kid that is not a string"),
        pytest.param(json.dumps(SHORT_JWK), "an RSA key of fewer than 2048 bits", id="a short key"),
    ],
)
def test_secret_without_usable_key_is_rejected(secret: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keys.parse_keys(secret)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "Empty JWT is sent in Authorization header"),
        ("abc", "Expected 3 parts in JWT; got 1"),
        ("a.b.c.d", "Expected 3 parts in JWT; got 4"),
        ("é.b.c", "JWT cryptographic operation failed"),
        ("!!.b.c", "JWT cryptographic operation failed"),
        (signed({}).replace(".", ".=", 1), "JWT cryptographic operation failed"),
        (raw([], b"{}"), "JWT cryptographic operation failed"),
        (raw({"alg": "HS256", "crit": ["b64"], "b64": False}, b"{}"), "JWT cryptographic operation failed"),
        (signed({}, SECRET + "another"), "No suitable key or wrong key type"),
    ],
)
def test_malformed_token_is_rejected(token: str, message: str) -> None:
    error = refusal(token)
    assert (error.code, error.message) == ("PGRST301", message)


def test_modified_signature_is_rejected() -> None:
    head, _, signature = signed({"role": "r"}).rpartition(".")
    modified = ("A" if signature[0] != "A" else "B") + signature[1:]
    assert refusal(f"{head}.{modified}").details == "None of the keys was able to decode the JWT"


@pytest.mark.parametrize("payload", [b"[]", b"5", b"", b"{", b"\xff", b'{"a":NaN}', b"[" * 100_000])
def test_claims_that_are_not_an_object_are_rejected(payload: bytes) -> None:
    error = refusal(raw({"alg": "HS256"}, payload))
    assert (error.code, error.message) == ("PGRST303", "Parsing claims failed")


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": NOW - 31}, "JWT expired"),
        ({"exp": -(10**400)}, "JWT expired"),
        ({"nbf": NOW + 31}, "JWT not yet valid"),
        ({"iat": NOW + 31}, "JWT issued at future"),
        ({"exp": "soon"}, "The JWT 'exp' claim must be a number"),
        ({"nbf": [1]}, "The JWT 'nbf' claim must be a number"),
        ({"iat": True}, "The JWT 'iat' claim must be a number"),
        ({"aud": "other"}, "JWT not in audience"),
        ({"aud": ["other", "another"]}, "JWT not in audience"),
        ({"aud": 5}, "The JWT 'aud' claim must be a string or an array of strings"),
        ({"aud": ["us", 5]}, "The JWT 'aud' claim must be a string or an array of strings"),
        ({"role": ""}, "The JWT role claim must be a non-empty string"),
        ({"role": 5}, "The JWT role claim must be a non-empty string"),
        ({"role": ["anon"]}, "The JWT role claim must be a non-empty string"),
        ({"role": "a\0b"}, "The JWT role claim must be a non-empty string"),
        ({"role": "\ud800"}, "The JWT role claim must be a non-empty string"),
    ],
)
def test_invalid_claims_are_rejected(claims: dict[str, Any], message: str) -> None:
    error = refusal(raw({"alg": "HS256"}, json.dumps(claims).encode()), audience="us")
    assert (error.code, error.message) == ("PGRST303", message)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW - 29, "nbf": NOW + 29, "iat": NOW + 29},
        {"exp": None, "nbf": None, "iat": None, "aud": None},
        {"exp": 10**400},
        {"exp": NOW + 0.5},
        {"aud": "us"},
        {"aud": ["them", "us"]},
        {"aud": []},
        {},
    ],
)
def test_claims_within_clock_skew_and_audience_are_accepted(claims: dict[str, Any]) -> None:
    assert check(raw({"alg": "HS256"}, json.dumps(claims).encode()), audience="us").caller.role == "anon"


def test_any_audience_is_accepted_by_default() -> None:
    assert check(signed({"aud": "other"})).caller.role == "anon"


def test_token_without_a_role_gets_the_anonymous_role() -> None:
    verified = check(signed({"sub": "1"}))
    assert verified.caller.role == "anon"
    assert not verified.has_role
    assert json.loads(verified.caller.claims) == {"sub": "1", "role": "anon"}


def test_claims_keep_their_json_text() -> None:
    text = '{"role": "r", "n": 12345678901234567890.123450, "name": "Zoë"}'
    assert check(raw({"alg": "HS256"}, text.encode())).caller.claims == text


def test_role_at_the_configured_path_is_added_to_the_claims() -> None:
    verified = check(signed({"app": {"roles": ["x", "editor"]}, "role": "shadowed"}), path=".app.roles[1]")
    assert verified.caller.role == "editor"
    assert json.loads(verified.caller.claims)["role"] == "editor"


CLAIMS = {"a": {"b-c": ["x", "db_one", "db_two"], "n": 1}, "https://e.org/r": "r", "role": None}


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        (".a.n", 1),
        ('.a."b-c"[0]', "x"),
        ('.a."b-c"[9]', None),
        ('."https://e.org/r"', "r"),
        ('.a."b-c"[?(@ == "x")]', "x"),
        ('.a."b-c"[?(@ != "x")]', "db_one"),
        ('.a."b-c"[?(@ ^== "db_")]', "db_one"),
        ('.a."b-c"[?(@ ==^ "two")]', "db_two"),
        ('.a."b-c"[?(@ *== "_t")]', "db_two"),
        ('.a."b-c"[?(@ == "none")]', None),
        ("$.a.n", 1),
        ("$.a['b-c'][-1]", "db_two"),
        ('$["https://e.org/r"]', "r"),
        ("$.a['b-c'][?@ == 'x']", "x"),
        ("$.a['b-c'][?search(@, '^db_')]", "db_one"),
        ("$.a['b-c'][?search(@, 'e$') && @ != 'x']", "db_one"),
        ("$.a['b-c'][*]", "x"),
        ("$.a['b-c'][1:]", "db_one"),
        ("$..n", 1),
        ("$..['b-c'][2]", "db_two"),
        ("$.*[?@ == 'x']", None),
        ("$..missing", None),
        ("$.a['b-c'][?length(@) == 6]", "db_one"),
        ('.a."b-c"[-9]', None),
        ('.a."b-c"[1][3:]', "one"),
        ('.a."b-c"[1][:-1]', "db_on"),
        ('.a."b-c"[1:]', None),
        (".role", None),
        (".role.deeper[0]", None),
        (".a[0]", None),
        (".missing", None),
    ],
)
def test_path_selects_a_claim_or_nothing(path: str, selected: Any) -> None:
    assert parse_role_path(path).find(CLAIMS) == selected


@pytest.mark.parametrize(
    "path",
    [
        *("", "$", "role", "$role", ".", "[0]", ".a.", ".a b", '."open', ".a[x]", "['a\"]", ".a[-]"),
        *(".a[?(@)]", ".a[?@ == 'x')]", ".a[?(@ == 'x']", ".a[1:2:3]"),
        *("$.my_role;;domain", "@@.role.other", "$.a[", "$.a[?(@ ^== 'x')]", f"$.a[?{'(' * 9999}@]"),
    ],
)
def test_invalid_path_is_rejected_with_its_position(path: str) -> None:
    with pytest.raises(ValueError, match=r"invalid claim path at character \d+"):
        parse_role_path(path)


NAMES = st.text().filter(lambda name: '"' not in name)
POSITIONS = st.integers(-999_999_999, 999_999_999)
STEPS = st.one_of(
    st.builds(MemberStep, NAMES),
    st.builds(IndexStep, POSITIONS),
    st.builds(SliceStep, st.none() | POSITIONS, st.none() | POSITIONS),
    st.builds(FilterStep, st.sampled_from(["==", "!=", "^==", "==^", "*=="]), NAMES),
)


@given(st.builds(MemberStep, NAMES), st.lists(STEPS))
def test_path_round_trips_through_its_text(first: MemberStep, rest: list[Step]) -> None:
    path = StepPath((first, *rest))
    assert parse_role_path("".join(map(written, path.steps))) == path


def written(step: Step) -> str:
    """Return a step in the syntax of ``jwt-role-claim-key``."""
    match step:
        case MemberStep(name):
            return f'."{name}"'
        case IndexStep(position):
            return f"[{position}]"
        case SliceStep(start, stop):
            return f"[{'' if start is None else start}:{'' if stop is None else stop}]"
        case FilterStep(compare, wanted):
            return f'[?(@ {compare} "{wanted}")]'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.lists(STEPS), JSON)
def test_any_path_through_any_claims_never_fails(path: list[Step], claims: Any) -> None:
    StepPath(tuple(path)).find(claims)
    for query in ("$..a", "$.*[?@.b == $.c]", "$[?search(@, 'x')]..*", "$[-1:0:-1]"):
        parse_role_path(query).find(claims)


def test_deeply_nested_claims_have_no_role() -> None:
    claims: Any = "role"
    for _ in range(900):
        claims = {"a": claims}
    assert parse_role_path("$..b").find(claims) is None


@given(st.text())
def test_any_text_as_token_is_rejected_without_an_internal_error(token: str) -> None:
    with pytest.raises(TokenError):
        check(token)


def cached(entries: int) -> TokenCache:
    return TokenCache(verifier().verify, entries)


def test_cached_token_is_not_verified_again() -> None:
    cache, token = cached(10), signed({"role": "r", "exp": NOW + 100})
    assert cache.verify(token, NOW) is cache.verify(token, NOW + 50)
    assert (cache.hits, cache.misses) == (1, 1)


def test_expired_token_is_dropped_from_the_cache() -> None:
    cache, token = cached(10), signed({"exp": NOW + 100})
    cache.verify(token, NOW)
    cache.verify(token, NOW + 130)
    with pytest.raises(TokenError, match="JWT expired"):
        cache.verify(token, NOW + 131)
    assert len(cache) == 0


def test_cache_checks_nbf_and_iat_when_the_clock_is_set_back() -> None:
    for claims in ({"nbf": NOW}, {"nbf": NOW, "iat": NOW - 100}, {"nbf": NOW, "iat": NOW - 1}):
        cache, token = cached(10), signed(claims)
        cache.verify(token, NOW)
        with pytest.raises(TokenError, match="JWT not yet valid"):
            cache.verify(token, NOW - 31)


def test_cache_evicts_the_least_recently_used_token() -> None:
    cache = cached(2)
    first, second, third = (signed({"sub": sub}) for sub in "123")
    for token in (first, second, first, third, first):
        cache.verify(token, NOW)
    assert (cache.hits, cache.misses, len(cache)) == (2, 3, 2)
    cache.verify(second, NOW)
    assert cache.misses == 4, "the second token was evicted"


def test_cache_of_size_zero_stores_nothing() -> None:
    cache, token = cached(0), signed({})
    cache.verify(token, NOW)
    cache.verify(token, NOW)
    assert (cache.hits, cache.misses, len(cache)) == (0, 2, 0)


def test_rejected_tokens_are_not_cached() -> None:
    cache = cached(10)
    for _ in range(3):
        with pytest.raises(TokenError):
            cache.verify("a.b.c", NOW)
    assert len(cache) == 0
