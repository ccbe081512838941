"""Requests with an idempotency key: the same one again gets the first answer and changes nothing."""

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
from dataapi.webhooks.management.authorization import bearer
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError, invalid
from dataapi.webhooks.management.operations import IDEMPOTENCY_KEY
from dataapi.webhooks.management.resources import MAX_KEY_LENGTH
from dataapi.webhooks.model import Token
from dataapi.webhooks.store.answers import Answers, KeyedRequest, NoAnswer, OtherRequest

_KEY = re.compile(rf"[ -~]{{1,{MAX_KEY_LENGTH}}}")
_log = Logger(namespace="dataapi.webhooks")

T = TypeVar("T")


def keyed(request: Request, token: Token, document: Any) -> KeyedRequest | None:
    """Return what makes a request the same as another one, None if it has no key.

    :param document: its parsed body.
    :raises ManagementError: the key is malformed.
    """
    key = request.headers.get(IDEMPOTENCY_KEY.lower())
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        message = f"Expected 1 to {MAX_KEY_LENGTH} printable ASCII characters"
        raise invalid(Issue(IssueCode.FORMAT, message, header=IDEMPOTENCY_KEY))
    whole = json.dumps([request.method, request.path, request.query, document], sort_keys=True)
    return KeyedRequest(token.id, bearer(request) or "", key, hashlib.sha256(whole.encode()).digest())


class RepeatableRequests:
    """Runs requests that have a key, each once."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def answer(self, request: KeyedRequest, run: Callable[[], Awaitable[Reply]]) -> Reply:
        """Run a request unless it was run before, and return its answer.

        :raises ApiError: the key cannot be used, or the request is refused, after which the key is free.
        """
        # A client that gives up and asks again is to find the answer.
        return await _uninterrupted(self._answer(request, run))

    async def _answer(self, request: KeyedRequest, run: Callable[[], Awaitable[Reply]]) -> Reply:
        try:
            known = await self._answers.begin(request)
        except OtherRequest:
            raise ManagementError(ErrorCode.KEY_USED) from None
        except NoAnswer:
            raise ManagementError(ErrorCode.KEY_UNANSWERED) from None
        if known is not None:
            status, headers, text = json.loads(known)
            return Reply(status, tuple((name, value) for name, value in headers), text.encode())
        try:
            reply = await run()
        except DatabaseUnavailable:
            raise  # whether it took effect is not known
        except ApiError:
            await self._answers.forget(request)
            raise
        kept = json.dumps([reply.status, reply.headers, reply.body.decode()])
        await self._answers.end(request, kept.encode())
        return reply


def _uninterrupted(work: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Begin work that goes on although its caller is cancelled."""
    waiting: Deferred[T] = Deferred()

    def ended(result: T | Failure) -> None:
        if not waiting.called:
            waiting.callback(result)
        elif isinstance(result, Failure) and not result.check(ApiError):
            _log.failure("a request that its client gave up failed", result)

    Deferred.fromCoroutine(work).addBoth(ended)
    return waiting
