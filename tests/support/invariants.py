"""Invariants to check after a ``Campaign``, when every delivery is finished."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from standardwebhooks import Webhook, WebhookVerificationError
from support.recorder import ELSEWHERE, Behaviour, Recorded

if TYPE_CHECKING:
    from support.campaign import Campaign
    from support.known import Published, Target

MAXIMUM = 5
"""Maximum number of automatic attempts."""
NEAR = 3.0
"""Maximum seconds between a fault and a request that it affects, because claimed work can wait."""


@dataclass(frozen=True)
class Record:
    """An attempt in the history."""

    event: str
    trigger: str
    attempt: int
    status: str
    final: bool
    code: int


class Verdict:
    """Compares the events that a ``Campaign`` published with the database and the received requests."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        database = campaign.installation.database
        rows = database.execute(
            "select v.id::text, endpoint_id::text, (body::jsonb -> 'payload' ->> 'number')::int,"
            " body::jsonb #> '{payload,is_test}' is not null"
            " from webhooks.event v join webhooks.endpoint e on e.id = v.endpoint_id"
        )
        # The payloads of test events and of events about endpoints contain no number.
        self._events: dict[str, tuple[str, int | None]] = {
            event: (endpoint, number) for event, endpoint, number, _ in rows
        }
        self._tests = {event for event, _, _, is_test in rows if is_test}
        self._records: dict[str, list[Record]] = defaultdict(list)
        for row in campaign.installation.records():
            self._records[row[0]].append(Record(*row))
        self._requests: dict[str, list[Recorded]] = defaultdict(list)
        for request in campaign.installation.recorder.requests:
            self._requests[request.identifier].append(request)
        self._by_path = {path: target for target in campaign.targets for path in target.paths}
        self._by_endpoint = {target.identifier: target for target in campaign.targets}

    def check(self) -> str:
        """Fail if an invariant is violated; otherwise return a summary."""
        assert self._campaign.installation.due == 0
        complaints = self._campaign.installation.complaints()
        assert not complaints, complaints
        self._nothing_is_lost_or_made_up()
        self._each_key_made_one_token()
        for event, (endpoint, _) in self._events.items():
            self._ended(event, self._by_endpoint[endpoint], is_test=event in self._tests)
            self._as_often_as_recorded(event, self._requests.get(event, []))
        for event, requests in self._requests.items():
            self._genuine(event, requests)
        received = len(self._all())
        records = Counter(record.status for event in self._events for record in self._records[event])
        faults = len(self._campaign.faults)
        return f"{len(self._events)} events, {received} requests, {faults} faults, {dict(records)}"

    def _nothing_is_lost_or_made_up(self) -> None:
        """Check that exactly the committed events were delivered to each endpoint."""
        copies = Counter((endpoint, number) for endpoint, number in self._events.values())
        assert all(count == 1 for (_, number), count in copies.items() if number is not None), copies
        numbers = {number for _, number in self._events.values()}
        assert numbers.isdisjoint(self._campaign.rolled_back)
        received = {request.event["payload"].get("number") for request in self._all()}
        assert received.isdisjoint(self._campaign.rolled_back)
        for event in (*self._campaign.published, *self._campaign.by_command):
            self._there(event, copies)

    def _each_key_made_one_token(self) -> None:
        """Check that repeated requests with an idempotency key created one token."""
        campaign = self._campaign
        assert all(len(responses) <= 1 for responses in campaign.answers.values()), campaign.answers
        [(tokens,)] = campaign.installation.database.execute(
            "select count(*) from webhooks.token where organization_slug = 'acme' and portal is null"
        )
        tokens_returned = sum(map(len, campaign.answers.values()))
        assert tokens_returned <= tokens - 1 <= len(campaign.answers)

    def _there(self, event: Published, copies: Counter[tuple[str, int | None]]) -> None:
        if event in self._campaign.published:
            assert event.known, f"event {event.number} could not be published"
        for identifier in event.targets if event.known else ():
            if self._by_endpoint[identifier].steady:
                assert copies[identifier, event.number] == 1, f"event {event.number} got lost"

    def _ended(self, event: str, target: Target, *, is_test: bool) -> None:
        """Check that there are at most five attempts, numbered without gaps, and only the last is final."""
        records = [one for one in self._records[event] if one.trigger != "manual"]
        message = f"{event} to {target.paths}: {self._records[event]}"
        assert records, f"no attempt of {message}"
        assert {one.trigger for one in records} == {"test" if is_test else "automatic"}, message
        assert [one.attempt for one in records] == list(range(1, len(records) + 1)), message
        assert [one.final for one in records] == [False] * (len(records) - 1) + [True], message
        assert all(one.status == "failed" for one in records[:-1]), message
        last = records[-1]
        assert len(records) <= (1 if is_test else MAXIMUM), message
        if last.status == "failed":
            assert is_test or len(records) == MAXIMUM, message
        if last.status == "skipped":
            assert not target.steady, message
        assert all(one.final for one in self._records[event] if one.trigger == "manual"), message

    def _genuine(self, event: str, requests: list[Recorded]) -> None:
        """Check that the requests for an event have one body, one endpoint, and correct signatures."""
        assert len({one.body for one in requests}) == 1, event
        for one in requests:
            assert one.path != ELSEWHERE, "a redirect was followed"
            assert one.event["id"] == event
            target = self._by_path[one.path]
            assert any(_is_signed(one, secret) for secret in target.secrets), one
            if event in self._events:
                assert self._events[event][0] == target.identifier, one
            else:
                assert not target.steady, f"{one} does not belong to any event"

    def _as_often_as_recorded(self, event: str, requests: list[Recorded]) -> None:
        """Check that attempts match requests. Each fault may leave one request without an attempt."""
        sent = [one for one in self._records[event] if one.status != "skipped"]
        given = Counter(one.behaviour for one in requests)
        for code, behaviour in ((200, Behaviour.TAKE), (500, Behaviour.REFUSE), (302, Behaviour.REDIRECT)):
            assert sum(one.code == code for one in sent) <= given[behaviour], (sent, requests)
        if not requests:
            return
        first, last = requests[0].at - NEAR, requests[-1].at
        if len(sent) < len(self._records[event]):
            # An interrupted attempt may be skipped if its endpoint was disabled.
            last += NEAR
        faults = sum(began <= last and ended >= first for began, ended in self._campaign.faults)
        assert len(requests) <= len(sent) + faults, (sent, requests, faults)

    def _all(self) -> list[Recorded]:
        return [one for requests in self._requests.values() for one in requests]


def _is_signed(request: Recorded, secret: str) -> bool:
    verifier: Any = Webhook(secret if secret.startswith("whsec_") else secret.encode())
    try:
        verifier.verify(request.body, dict(request.headers))
    except WebhookVerificationError:
        return False
    return True
