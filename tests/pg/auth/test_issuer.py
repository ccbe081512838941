"""Public keys of an external issuer that signs the project's tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jwt
import pytest
import pytest_twisted
from cryptography.hazmat.primitives.asymmetric import ec
from dataapi.http.errors import TokenError
from dataapi.http.messages import Request
from dataapi.service.project import ProjectPart
from dataapi.settings import Project
from dataapi.telemetry.readiness import ReloadError
from jwt.algorithms import ECAlgorithm
from support.service import run
from twisted.web.resource import Resource
from twisted.web.server import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from support.postgres import Database

    Start = Callable[[str], Coroutine[Any, Any, ProjectPart]]

KEY = ec.generate_private_key(ec.SECP256R1())
JWKS = {"keys": [{**ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "1"}]}


class Published(Resource):
    """A resource that serves the issuer's keys."""

    def __init__(self) -> None:
        super().__init__()
        self.document: Any = JWKS

    def render_GET(self, request: Any) -> bytes:  # noqa: ARG002, N802 - twisted's interface
        return json.dumps(self.document).encode()


@pytest.fixture
def published() -> Published:
    return Published()


@pytest.fixture
def start(database: Database, reactor: Any, published: Published) -> Iterator[Start]:
    """Return a function that starts a project with the key set at a path of a local issuer."""
    root = Resource()
    root.putChild(b"jwks.json", published)
    port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
    parts: list[ProjectPart] = []

    async def start_project(path: str) -> ProjectPart:
        url = f"http://127.0.0.1:{port.getHost().port}/{path}"
        project = Project(
            "abcdefghijklmnopqrst", "acme", database.uri, jwt_secret=url, publishable_keys=("key",), db_pool=1
        )
        parts.append(ProjectPart(reactor, project))
        await parts[-1].start()
        return parts[-1]

    yield start_project
    for part in parts:
        run(part.stop())
    pytest_twisted.blockon(port.stopListening())


async def authenticated_role(part: ProjectPart) -> str:
    token = jwt.encode({"role": "authenticated"}, KEY, "ES256", headers={"kid": "1"})
    headers = {"apikey": "key", "authorization": f"Bearer {token}"}
    assert part.apis is not None
    return (
        await part.apis.backend.authenticator.authenticate(
            Request("id", "GET", "/rest/v1/", "", headers, b"")
        )
    ).role


async def test_project_reads_its_keys_from_their_url(start: Start) -> None:
    assert await authenticated_role(await start("jwks.json")) == "authenticated"


async def test_project_starts_without_its_keys(start: Start) -> None:
    """Until the keys are fetched, requests with a token get a 503 and other requests work."""
    part = await start("elsewhere.json")
    with pytest.raises(TokenError) as refused:
        await authenticated_role(part)
    assert (refused.value.status, refused.value.code) == (503, "PGRST300")
    assert part.state().database_available


async def test_reload_reads_the_keys_again(start: Start, published: Published) -> None:
    part = await start("jwks.json")
    assert await authenticated_role(part) == "authenticated"
    published.document = {"keys": [{**JWKS["keys"][0], "kid": "2"}]}
    before = await part.reload()
    with pytest.raises(TokenError):
        await authenticated_role(part)
    published.document = JWKS
    assert await part.reload() > before
    assert await authenticated_role(part) == "authenticated"
    published.document = "nonsense"
    with pytest.raises(
        ReloadError, match="the keys at the URL of jwt-secret could not be read: the response is not a JWKS"
    ):
        await part.reload()
    assert await authenticated_role(part) == "authenticated"
