"""Authenticates a request: checks the project's API key and the bearer token, and returns the caller.

See docs/reference/rest.md, API keys: the key must be present and valid whatever the token says; a
user's token decides role and claims; without one the key's own role stands.
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
_BROWSER = "Mozilla/"
"""How the User-Agent of browsers begins, and of hardly anything else."""

_OPAQUE = "sb_"
"""How the platform's opaque keys begin: as a bearer token, such a key is not a JWT and names no user."""


class Authenticator:
    """Decides the caller of each request to one project.

    :param now: the time in Unix seconds.
    :ivar tokens: the verified tokens; its counters are for the metrics.
    :raises ValueError: ``jwt-secret`` or ``jwt-role-claim-key`` cannot be read.
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
        """Verify with these keys from now on; tokens that others verified are forgotten."""
        self._verifier = replace(self._verifier, keys=known)
        self.tokens.replace_verifier(self._verifier.verify)

    def on_unknown_key(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Await ``refresh`` when a token's key is unknown; it passes new keys to ``use_keys``."""
        self._refresh_keys = refresh

    async def authenticate(self, request: Request) -> Caller:
        """Return the caller of a request, and report who it is; published keys are refreshed if need be.

        Raises like ``caller_of``.
        """
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
        """Check only the API key, before a body is read.

        A JWT key whose signing key is still unknown passes here and is left to ``authenticate``.

        :raises GatewayError: 401, the API key is missing or wrong.
        """
        if not self._required:
            return
        presented = api_key(request)
        try:
            keyholder = self._keyholder(presented, may_refresh=True)
        except TokenError:
            return
        if keyholder is None:
            raise _refusal("missing_api_key" if presented is None else "invalid_api_key")

    def caller_of(self, request: Request, *, may_refresh: bool = False) -> Caller:
        """Return the caller of a request by the keys that are known.

        :param may_refresh: whether an API key that is a JWT of an unknown key raises ``UnknownKey``, too.
        :raises GatewayError: 401, the API key is missing, wrong, or secret and sent by a browser.
        :raises TokenError: the bearer token is unusable, or anonymous access is disabled.
        """
        headers = request.headers
        presented = headers.get("apikey") or api_key(request)
        keyholder = self._keyholder(presented, may_refresh)
        if self._required and keyholder is None:
            raise _refusal("missing_api_key" if presented is None else "invalid_api_key")
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        token = credentials.strip() if scheme.lower() == "bearer" else None
        agent, key = headers.get("user-agent", ""), presented or token
        if key and agent.startswith(_BROWSER) and key.encode() in self._secret:  # where others can read it
            raise _refusal("secret_key_in_browser")
        if token is None or (token == presented and keyholder is not None):
            return _with_role(keyholder or self._anonymous)
        if token.startswith(_OPAQUE):
            known = keyholder or self._keyholder(token, may_refresh)
            if known is not None:
                return _with_role(known)
        return self.tokens.verify(token, self._now()).caller

    def _keyholder(self, key: str | None, may_refresh: bool) -> Caller | None:
        """Return the caller that a key stands for, or None for an unknown key."""
        if key is None:
            return None
        presented = key.encode()
        holder = None
        for known, caller in self._opaque:  # to the end, so that the time reveals nothing
            if hmac.compare_digest(known, presented):
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
    """Return the API key of a request: the header ``apikey``, for REST else the query parameter."""
    key = request.headers.get("apikey")
    if key:
        return key
    if "apikey=" in request.query and request.path.startswith(REST_PREFIX):
        return split_query(request.query)[0] or None
    return None


def split_query(query: str) -> tuple[str | None, str]:
    """Take the parameter ``apikey`` out of a query string: return its first value and the rest."""
    key, rest = None, []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name != "apikey":
            rest.append(part)
        elif key is None:
            key = unquote_plus(value)
    return key, "&".join(rest)


def without_api_key(request: Request) -> Request:
    """Return a REST request without the query parameter ``apikey``, which would be read as a filter."""
    return request._replace(query=split_query(request.query)[1])


def _opaque_caller(role: str) -> Caller:
    return Caller(role, json.dumps({"role": role}, separators=(",", ":")))


def _with_role(caller: Caller) -> Caller:
    if not caller.role:
        raise anonymous_disabled()
    return caller


REFUSALS = {
    "missing_api_key": (
        "No API key found in request",
        "No `apikey` request header or url param was found.",
    ),
    "secret_key_in_browser": (
        "Forbidden use of secret API key in browser",
        "Use a publishable key here. This secret key was seen by a browser: replace it.",
    ),
    "invalid_api_key": (
        "Invalid API key",
        "Keys are those of the configuration, and those in JWT form that `dataapi keys` prints.",
    ),
}
"""Messages and hints by the codes of errors."""


def _refusal(code: str) -> GatewayError:
    message, hint = REFUSALS[code]
    return GatewayError(401, code, message, hint=hint)
