"""One attempt from what was claimed to its outcome: rendered, sent, counted and logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from dataapi.errors import ApiError, DatabaseError
from dataapi.webhooks.attempt import Attempt
from dataapi.webhooks.payloads import read_payload
from dataapi.webhooks.tally import Tally, word
from dataapi.webhooks.work import DueWork, ErrorWord, Outcome

_DATA_EXCEPTION = "22"
"""The class of SQLSTATEs that a value is to blame for."""

Render: TypeAlias = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]
"""Makes an older version's payload of the published type, that version and the published payload."""


class Renders(Protocol):
    """Keeps what an older version of an event looks like."""

    async def rendered(self, event: UUID, payload: Mapping[str, Any]) -> bytes:
        """Keep the payload and return the body; ``LookupError`` when the event is gone."""


class Sends(Protocol):
    """Makes attempts; see ``attempt.Sender``."""

    async def send(self, attempt: Attempt) -> Outcome:
        """Make one; cancelled, it raises ``CancelledError``."""


class Courier:
    """Makes the attempts that were claimed."""

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(self, bodies: Renders, sender: Sends, render: Render, tally: Tally) -> None:
        self._bodies = bodies
        self._sender = sender
        self._render = render
        self._tally = tally

    async def deliver(self, work: DueWork, held: float) -> Outcome | None:
        """Make an attempt and return its outcome; None when none was made, so that its lease runs out.

        :param held: seconds since it was claimed.
        """
        began = datetime.now(UTC)
        try:
            body = work.body if work.body is not None else await self._body(work)
            if work.attempt_number == 1:
                self._tally.began(work.waited + held)
            headers = tuple(work.custom_headers.items())
            attempt = Attempt(work.url, work.signing_secret, str(work.event_id), body, headers)
            outcome = await self._sender.send(attempt)
        except CancelledError:
            return None
        except (ApiError, _Gone) as error:
            delivery, reason = str(work.claim.delivery_id), str(error)
            self._log.warn("delivery {delivery} is put off: {reason}", delivery=delivery, reason=reason)
            return None
        except Exception:
            self._log.failure("delivery {delivery} failed on our side", delivery=str(work.claim.delivery_id))
            outcome = Outcome(False, began, 0, error=ErrorWord.INTERNAL)
        self._tally.ended(outcome)
        self._tell(work, outcome)
        return outcome

    async def _body(self, work: DueWork) -> bytes:
        """Render an older version of an event, so that every attempt sends the same bytes."""
        published = read_payload(work.payload or "{}")
        payload = self._render(work.rendered_from or work.event_type, work.event_type, published)
        try:
            return await self._bodies.rendered(work.event_id, payload)
        except LookupError as error:
            raise _Gone("its event is gone") from error
        except DatabaseError as error:
            if error.code.startswith(_DATA_EXCEPTION):
                raise _Unstorable(error.message) from error
            raise

    def _tell(self, work: DueWork, outcome: Outcome) -> None:
        """Write the attempt's line, without what was sent and received."""
        self._log.info(
            "delivery {delivery}, attempt {attempt}: {outcome}",
            delivery=str(work.claim.delivery_id),
            event=str(work.event_id),
            endpoint=str(work.endpoint_id),
            type=work.event_type,
            trigger=str(work.trigger),
            attempt=work.attempt_number,
            outcome=word(outcome),
            response_code=outcome.response_code,
            duration_ms=outcome.duration_ms,
        )


class _Unstorable(Exception):
    """PostgreSQL cannot hold what was rendered, however often that is tried."""


class _Gone(Exception):
    """The endpoint, and with it the event, was deleted after the claim."""
