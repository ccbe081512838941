"""The management API of a daemon with two workers, from an empty database to deliveries."""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.cli.main import run
from dataapi.webhooks.delivery.headers import verify
from support.daemon import Answer, Daemon, wait_for
from support.webhooks import KEY, REF, SECRET, allow_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCOPE = f"/v2/projects/{REF}/webhooks"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RESTORE = f"""
    create function restore() returns uuid language plpgsql as $$
    begin return webhooks.publish('v1.project.restored', 'acme', '{REF}', '{{}}', 'by a function'); end $$;
    grant usage on schema webhooks to anon;
    grant execute on function webhooks.publish to anon;
"""
"""An application's function that publishes an event."""


class Receiver(ThreadingHTTPServer):
    """An HTTP server that accepts every webhook request.

    :ivar received: headers and body of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


class Customer:
    """A client with a token that the operator created with ``dataapi token create``."""

    def __init__(self, daemon: Daemon, token: str) -> None:
        self._daemon = daemon
        self._headers = {"Authorization": f"Bearer {token}"}

    def send(self, method: str, path: str, document: Any = None, **headers: str) -> Answer:
        body = None if document is None else json.dumps(document)
        return self._daemon.request(method, path, body, {**self._headers, **headers})

    def call(self, function: str, **headers: str) -> Answer:
        """Call a function over REST without a token."""
        return self._daemon.request("POST", f"/rest/v1/rpc/{function}", "{}", headers)

    def delivery(self, event: str) -> Any:
        """Wait until the event's only delivery is finished and return it."""

        def done() -> Any:
            [record] = self.send("GET", f"{SCOPE}/deliveries?filter[event_id]={event}").json["data"]
            return record["attributes"] if record["attributes"]["status"] != "pending" else None

        return wait_for(done, "the delivery")


@pytest.fixture(scope="module")
def customer(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Customer]:
    """Yield a customer of a daemon. The operator's commands have prepared the daemon's database."""
    database = server.create_database()
    allow_migrations(database)
    environ = {
        "DATAAPI_PROJECT_DB_URI": database.uri,
        "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
        "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY,
        "DATAAPI_WEBHOOKS_ALLOW_ADDRESSES": "127.0.0.1/32",
    }

    def operate(*words: str) -> str:
        output = io.StringIO()
        assert run(words, environ, output, output) == 0, output.getvalue()
        return output.getvalue().strip()

    operate("organization", "create", "acme", "--early-access")
    operate("project", "create", REF, "--organization", "acme")
    permissions = [word for name in ("webhooks:read", "webhooks:write", "events:publish")
                   for word in ("--permission", name)]  # fmt: skip
    token = operate("token", "create", "--organization", "acme", *permissions)
    database.execute(RESTORE)
    folder = tmp_path_factory.mktemp("management")
    with Daemon(folder, database.uri, "--workers", "2", environ=environ) as daemon:
        daemon.wait_ready()
        yield Customer(daemon, token)


def test_endpoint_lifecycle_from_creation_to_deletion(customer: Customer, receiver: Receiver) -> None:
    """Covers operations 2, 6, 7, 11 and 14 of the management API."""
    attributes = {
        "url": f"http://127.0.0.1:{receiver.server_port}/hooks",
        "event_types": [{"type": "*"}],
        "signing_secret": SECRET,
        "custom_headers": {"X-Mine": "yes"},
    }
    document = {"data": {"type": "endpoint", "attributes": attributes}}
    made = customer.send("POST", f"{SCOPE}/endpoints", document)
    assert made.status == 201
    endpoint = made.headers["Location"]
    tested = customer.send("POST", f"{endpoint}/test", {})
    assert tested.status == 201
    done = customer.delivery(tested.json["data"]["id"])
    assert (done["status"], done["trigger"], done["response_code"]) == ("success", "test", 204)
    published = {
        "data": {
            "type": "event",
            "attributes": {
                "type": "v1.project.restored", "organization_slug": "acme", "project_ref": REF, "payload": {},
            },
        },
        "meta": {"idempotency_key": "once"},
    }  # fmt: skip
    responses = [customer.send("POST", "/v1/webhooks/events", published, traceparent=TRACE) for _ in range(4)]
    assert {(response.status, response.body) for response in responses} == {(201, responses[0].body)}
    wait_for(lambda: len(receiver.received) == 2, "the second delivery")
    headers, body = receiver.received[1]
    event = json.loads(body)
    assert (headers["x-mine"], headers["webhook-id"], headers["traceparent"]) == ("yes", event["id"], TRACE)
    assert verify(SECRET, event["id"], int(headers["webhook-timestamp"]), body, headers["webhook-signature"])
    assert customer.delivery(event["id"])["status"] == "success"
    delivery = tested.json["data"]["attributes"]["delivery_id"]
    retried = customer.send("POST", f"{SCOPE}/deliveries/{delivery}/retry")
    assert retried.status == 201
    wait_for(lambda: len(receiver.received) == 3, "the retry")
    assert receiver.received[2][0]["webhook-id"] == receiver.received[0][0]["webhook-id"]
    assert "traceparent" not in receiver.received[2][0]
    assert customer.call("restore", traceparent=TRACE).status == 200
    wait_for(lambda: len(receiver.received) == 4, "the event of a function")
    assert receiver.received[3][0]["traceparent"] == TRACE
    assert customer.send("DELETE", endpoint).status == 200
    assert customer.send("GET", f"{SCOPE}/deliveries").json["data"] == []
