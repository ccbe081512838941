"""Authentication of requests by API key and bearer token.

The API key must be valid even if there is a token. A user's token determines the role and the claims;
otherwise the API key does. See docs/reference/rest.md, API keys.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import unquote_plus

from dataapi.auth import keys
from dataapi.auth.caller import REST_PREFIX, Caller
from dataapi.auth.jwt import TokenCache, UnknownKey, Verifier, anonymous_disabled
from dataapi.auth.role_path import parse_role_path
from dataapi.http.errors import GatewayError, TokenError
from dataapi.http.messages import Identity, Request
from dataapi.settings import Project

SERVICE_ROLE = "service_role"

_UNAVAILABLE = 503
_BROWSER_PREFIX = "Mozilla/"

_OPAQUE_KEY_PREFIX = "sb_"
"""Prefix of API keys that are not JWTs."""


class Authenticator:
    """Determines the caller of each request to a project. ``now`` returns Unix seconds.

    :raises ValueError: ``jwt-secret`` or ``jwt-role-claim-key`` is invalid.
    """

    def __init__(self, project: Project, now: Callable[[], float]) -> None:
        secret = project.jwt_secret
        published = secret is not None and keys.is_url(secret)
        known = (
            keys.parse_keys(secret, is_base64=project.jwt_secret_is_base64)
            if secret and not published
            else ()
        )
        path = parse_role_path(project.jwt_role_claim_key)
        self._verifier = Verifier(known, project.jwt_aud, path, project.db_anon_role, published)
        self.tokens = TokenCache(self._verifier.verify, project.jwt_cache_max_entries)
        self._refresh_keys: Callable[[], Awaitable[None]] | None = None
        self._required = project.require_api_key
        self._anonymous = _opaque_caller(project.db_anon_role)
        self._has_secret = bool(project.jwt_secret)
        service = _opaque_caller(SERVICE_ROLE)
        self._opaque = [(key.encode(), self._anonymous) for key in project.publishable_keys]
        self._opaque += [(key.encode(), service) for key in project.secret_keys]
        self._secret = frozenset(key.encode() for key in project.secret_keys)
        self._now = now

    def use_keys(self, known: tuple[keys.VerifyingKey, ...]) -> None:
        self._verifier = replace(self._verifier, keys=known)
        self.tokens.replace_verifier(self._verifier.verify)

    def on_unknown_key(self, refresh: Callable[[], Awaitable[None]]) -> None:
        self._refresh_keys = refresh

    async def authenticate(self, request: Request) -> Caller:
        try:
            caller = self.caller_of(request, may_refresh=self._refresh_keys is not None)
        except UnknownKey:
            if self._refresh_keys is None:
                raise
            await self._refresh_keys()
            caller = self.caller_of(request)
        request.context.report(Identity(caller.role, caller.subject))
        return caller

    def check_key(self, request: Request) -> None:
        """Check only the API key, before the body is read.

        A JWT with an unknown signing key passes, because ``authenticate`` may refresh the keys.

        :raises GatewayError: 401 if the API key is missing or invalid.
        """
        if not self._required:
            return
        presented = api_key(request)
        try:
            keyholder = self._keyholder(presented, may_refresh=True)
        except TokenError:
            return
        if keyholder is None:
            raise _api_key_error("missing_api_key" if presented is None else "invalid_api_key")

    def caller_of(self, request: Request, *, may_refresh: bool = False) -> Caller:
        """Return the caller of a request, using only known keys.

        :param may_refresh: whether to raise ``UnknownKey`` for an API key signed with an unknown key.
        :raises GatewayError: 401 if the API key is missing or invalid, or if a browser sent a secret key.
        :raises TokenError: the bearer token is invalid, or anonymous access is disabled.
        """
        headers = request.headers
        presented = headers.get("apikey") or api_key(request)
        keyholder = self._keyholder(presented, may_refresh)
        if self._required and keyholder is None:
            raise _api_key_error("missing_api_key" if presented is None else "invalid_api_key")
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        token = credentials.strip() if scheme.lower() == "bearer" else None
        agent, key = headers.get("user-agent", ""), presented or token
        if key and agent.startswith(_BROWSER_PREFIX) and key.encode() in self._secret:
            raise _api_key_error("secret_key_in_browser")
        if token is None or (token == presented and keyholder is not None):
            return _with_role(keyholder or self._anonymous)
        if token.startswith(_OPAQUE_KEY_PREFIX):
            caller = keyholder or self._keyholder(token, may_refresh)
            if caller is not None:
                return _with_role(caller)
        return self.tokens.verify(token, self._now()).caller

    def _keyholder(self, key: str | None, may_refresh: bool) -> Caller | None:
        if key is None:
            return None
        presented = key.encode()
        holder = None
        for expected, caller in self._opaque:  # compares with every key, to leak nothing through timing
            if hmac.compare_digest(expected, presented):
                holder = caller
        if holder is not None or key.count(".") != 2 or not self._has_secret:
            return holder
        try:
            verified = self.tokens.verify(key, self._now())
        except TokenError as error:
            if isinstance(error, UnknownKey) and (may_refresh or error.status == _UNAVAILABLE):
                raise
            return None
        return verified.caller if verified.has_role else None


def api_key(request: Request) -> str | None:
    key = request.headers.get("apikey")
    if key:
        return key
    if "apikey=" in request.query and request.path.startswith(REST_PREFIX):
        return split_query(request.query)[0] or None
    return None


def split_query(query: str) -> tuple[str | None, str]:
    """Return the first value of the parameter ``apikey``, and the query string without it."""
    key, rest = None, []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name != "apikey":
            rest.append(part)
        elif key is None:
            key = unquote_plus(value)
    return key, "&".join(rest)


def without_api_key(request: Request) -> Request:
    """Return a REST request without the parameter ``apikey``, so that it is not parsed as a filter."""
    return request._replace(query=split_query(request.query)[1])


def _opaque_caller(role: str) -> Caller:
    return Caller(role, json.dumps({"role": role}, separators=(",", ":")))


def _with_role(caller: Caller) -> Caller:
    if not caller.role:
        raise anonymous_disabled()
    return caller


API_KEY_ERRORS = {
    "missing_api_key": (
        "No API key found in request",
        "No `apikey` request header or url param was found.",
    ),
    "secret_key_in_browser": (
        "Forbidden use of secret API key in browser",
        "Use a publishable key here. This secret key was exposed to a browser: replace it.",
    ),
    "invalid_api_key": (
        "Invalid API key",
        "Use a key from the configuration, or a JWT that `dataapi keys` prints.",
    ),
}


def _api_key_error(code: str) -> GatewayError:
    message, hint = API_KEY_ERRORS[code]
    return GatewayError(401, code, message, hint=hint)
