"""Requests with an idempotency key: a repeated request returns the stored response and changes nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.http.errors import ApiError, DatabaseUnavailable
from dataapi.http.messages import Reply, Request
from dataapi.webhooks.management.authorization import bearer_token
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError, invalid
from dataapi.webhooks.management.operations import IDEMPOTENCY_KEY
from dataapi.webhooks.management.resources import MAX_KEY_LENGTH
from dataapi.webhooks.model import Token
from dataapi.webhooks.store.stored_responses import KeyedRequest, KeyReused, OutcomeUnknown, StoredResponses

_KEY = re.compile(rf"[ -~]{{1,{MAX_KEY_LENGTH}}}")
_log = Logger(namespace="dataapi.webhooks")

T = TypeVar("T")


def keyed_request(request: Request, token: Token, document: Any) -> KeyedRequest | None:
    """Return the values that identify a repeated request, or None if the request has no key.

    :raises ManagementError: malformed key.
    """
    key = request.headers.get(IDEMPOTENCY_KEY.lower())
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        message = f"Expected 1 to {MAX_KEY_LENGTH} printable ASCII characters"
        raise invalid(Issue(IssueCode.FORMAT, message, header=IDEMPOTENCY_KEY))
    identity = json.dumps([request.method, request.path, request.query, document], sort_keys=True)
    return KeyedRequest(
        token.id, bearer_token(request) or "", key, hashlib.sha256(identity.encode()).digest()
    )


class RepeatableRequests:
    """Runs requests with an idempotency key at most once."""

    def __init__(self, stored_responses: StoredResponses) -> None:
        self._stored_responses = stored_responses

    async def respond(self, request: KeyedRequest, run: Callable[[], Awaitable[Reply]]) -> Reply:
        """Run a request or return its stored response.

        :raises ApiError: the key cannot be used, or the request failed. After a failure, the key can be used
            again.
        """
        # A client that disconnects and repeats the request receives the stored response.
        return await _uninterrupted(self._respond(request, run))

    async def _respond(self, request: KeyedRequest, run: Callable[[], Awaitable[Reply]]) -> Reply:
        try:
            stored = await self._stored_responses.begin(request)
        except KeyReused:
            raise ManagementError(ErrorCode.KEY_USED) from None
        except OutcomeUnknown:
            raise ManagementError(ErrorCode.KEY_UNANSWERED) from None
        if stored is not None:
            status, headers, text = json.loads(stored)
            return Reply(status, tuple((name, value) for name, value in headers), text.encode())
        try:
            reply = await run()
        except DatabaseUnavailable:
            raise  # the outcome is unknown
        except ApiError:
            await self._stored_responses.forget(request)
            raise
        response = json.dumps([reply.status, reply.headers, reply.body.decode()])
        await self._stored_responses.end(request, response.encode())
        return reply


def _uninterrupted(work: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Start work that continues if its caller is cancelled."""
    waiting: Deferred[T] = Deferred()

    def ended(result: T | Failure) -> None:
        if not waiting.called:
            waiting.callback(result)
        elif isinstance(result, Failure) and not result.check(ApiError):
            _log.failure("a request failed after its client disconnected", result)

    Deferred.fromCoroutine(work).addBoth(ended)
    return waiting
