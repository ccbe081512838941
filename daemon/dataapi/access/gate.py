"""Lets a request in: checks the project API key and the bearer token, and says who is calling.

The rules and the bodies of refusals are those of reference/rest.md 2: the key must be
present and right whatever the token says; a user's token decides role and claims; without
one the key's own role stands.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import unquote_plus

from dataapi.access import keys, rolepath
from dataapi.access.cache import TokenCache
from dataapi.access.caller import Caller
from dataapi.access.jwt import UnknownKey, Verifier, anonymous_disabled
from dataapi.errors import GatewayError, TokenError
from dataapi.settings import Project
from dataapi.web.messages import Request

SERVICE_ROLE = "service_role"

REST_PREFIX = "/rest/v1"
"""Only below this path may the key come as the query parameter ``apikey``."""

_UNAVAILABLE = 503
_BROWSER = "Mozilla/"
"""How browsers begin their User-Agent, and hardly anything else does."""

_OPAQUE = "sb_"
"""How the platform's opaque keys begin: as a bearer token, such a one is no JWT and names no user."""


class Gate:
    """Decides the caller of each request of one project.

    :param now: the time in Unix seconds.
    :ivar tokens: the verified tokens; its counters are for the metrics.
    :raises ValueError: ``jwt-secret`` or ``jwt-role-claim-key`` cannot be read.
    """

    def __init__(self, project: Project, now: Callable[[], float]) -> None:
        secret = project.jwt_secret
        published = secret is not None and keys.is_address(secret)
        known = keys.parse(secret, is_base64=project.jwt_secret_is_base64) if secret and not published else ()
        path = rolepath.parse(project.jwt_role_claim_key)
        self._verifier = Verifier(known, project.jwt_aud, path, project.db_anon_role, published)
        self.tokens = TokenCache(self._verifier.verify, project.jwt_cache_max_entries)
        self._look_again: Callable[[], Awaitable[None]] | None = None
        self._required = project.require_api_key
        self._anonymous = _opaque_caller(project.db_anon_role)
        self._has_secret = bool(project.jwt_secret)
        service = _opaque_caller(SERVICE_ROLE)
        self._opaque = [(key.encode(), self._anonymous) for key in project.publishable_keys]
        self._opaque += [(key.encode(), service) for key in project.secret_keys]
        self._secret = frozenset(key.encode() for key in project.secret_keys)
        self._now = now

    def use(self, known: tuple[keys.VerifyingKey, ...]) -> None:
        """Verify with these keys from now on; what others verified is forgotten."""
        self._verifier = replace(self._verifier, keys=known)
        self.tokens.renew(self._verifier.verify)

    def ask_for_keys(self, look_again: Callable[[], Awaitable[None]]) -> None:
        """Have somebody to ask when a token's key is not known; new ones come through ``use``."""
        self._look_again = look_again

    async def admitted(self, request: Request) -> Caller:
        """Return the caller of a request, once the keys were looked for that its token needs.

        :raises ApiError: as ``admit``.
        """
        if self._look_again is None:
            return self.admit(request)
        try:
            return self._admit(request, patient=True)
        except UnknownKey:
            await self._look_again()
        return self.admit(request)

    def admit(self, request: Request) -> Caller:
        """Return the caller of a request.

        :raises GatewayError: 401, the API key is missing, wrong, or secret and sent by a browser.
        :raises TokenError: the bearer token is unusable, or nobody may come without one.
        """
        return self._admit(request, patient=False)

    def check_key(self, request: Request) -> None:
        """See that a request brings the API key that is asked for, before more is done for it.

        A key whose signing key is to be looked for first is left to ``admitted``.

        :raises GatewayError: 401, the API key is missing or wrong.
        """
        if not self._required:
            return
        presented = api_key(request)
        try:
            keyholder = self._keyholder(presented, patient=True)
        except TokenError:
            return
        if keyholder is None:
            raise _missing_key() if presented is None else _wrong_key()

    def _admit(self, request: Request, *, patient: bool) -> Caller:
        """Do what ``admit`` does, and raise as it does; when patient, ``UnknownKey`` for an API key too."""
        presented = api_key(request)
        keyholder = self._keyholder(presented, patient)
        if self._required and keyholder is None:
            raise _missing_key() if presented is None else _wrong_key()
        token = _bearer(request.headers.get("authorization"))
        if self._is_exposed(presented or token, request):
            raise _secret_in_browser()
        if token is None or (token == presented and keyholder is not None):
            return _named(keyholder or self._anonymous)
        if token.startswith(_OPAQUE):
            known = keyholder or self._keyholder(token, patient)
            if known is not None:
                return _named(known)
        return self.tokens.verified(token, self._now()).caller

    def _is_exposed(self, key: str | None, request: Request) -> bool:
        """Whether a secret key comes from a browser, where others can read it."""
        agent = request.headers.get("user-agent", "")
        return agent.startswith(_BROWSER) and key is not None and key.encode() in self._secret

    def _keyholder(self, key: str | None, patient: bool) -> Caller | None:
        """Return whose key this is, or None when it is nobody's."""
        if key is None:
            return None
        presented = key.encode()
        holder = None
        for known, caller in self._opaque:  # to the end, so that the time tells nothing
            if hmac.compare_digest(known, presented):
                holder = caller
        if holder is not None or key.count(".") != 2 or not self._has_secret:
            return holder
        try:
            verified = self.tokens.verified(key, self._now())
        except TokenError as error:
            if isinstance(error, UnknownKey) and (patient or error.status == _UNAVAILABLE):
                raise
            return None
        return verified.caller if verified.has_role else None


def api_key(request: Request) -> str | None:
    """Return the API key that a request presents: the header's, or for REST the query parameter's."""
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


def _bearer(header: str | None) -> str | None:
    """Return the token of an ``Authorization`` header; other schemes are not for us."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _opaque_caller(role: str) -> Caller:
    return Caller(role, json.dumps({"role": role}, separators=(",", ":")))


def _named(caller: Caller) -> Caller:
    if not caller.role:
        raise anonymous_disabled()
    return caller


def _missing_key() -> GatewayError:
    return GatewayError(
        401,
        "missing_api_key",
        "No API key found in request",
        hint="No `apikey` request header or url param was found.",
    )


def _secret_in_browser() -> GatewayError:
    return GatewayError(
        401,
        "secret_key_in_browser",
        "Forbidden use of secret API key in browser",
        hint="Use a publishable key here. This secret key was seen by a browser: replace it.",
    )


def _wrong_key() -> GatewayError:
    return GatewayError(
        401,
        "invalid_api_key",
        "Invalid API key",
        hint="Double check your Supabase `anon` or `service_role` API key.",
    )
