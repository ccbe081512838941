"""Requests never run as the login role or a superuser, whatever role their token names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.service.inspection import inspect
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

SCHEMA = """
create table item (id int primary key);
insert into item values (1);
create function who() returns text stable language sql as 'select current_user::text';
grant select on item to anon, authenticator;
"""
ROLES = """
create role almighty superuser; grant almighty to authenticator;
create role ordinary; grant ordinary to authenticator;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database whose login role may become a superuser."""
    server.admin.execute(ROLES)
    try:
        with serving(reactor, server.create_database(SCHEMA)) as service:
            yield service
    finally:
        server.admin.execute("drop role almighty; drop role ordinary")


@pytest.mark.parametrize(
    ("role", "hint"),
    [
        ("authenticator", "Requests never run as the login role of db-uri."),
        ("almighty", "Requests never run as a superuser."),
    ],
)
async def test_token_of_login_role_or_superuser_is_rejected(api: Service, role: str, hint: str) -> None:
    refused = {
        "code": "42501", "details": None, "hint": hint, "message": f'permission denied to set role "{role}"',
    }  # fmt: skip
    for method, target in (("GET", "item"), ("POST", "rpc/who"), ("GET", ""), ("DELETE", "item?id=eq.1")):
        response = await api.rest(method, target, {} if method == "POST" else None, role=role)
        assert (response.status, response.body, response.messages) == (403, refused, ())
    response = await api.ask("{ itemCollection { edges { node { id } } } }", role=role)
    assert response.messages == ()
    assert response.status == 403
    assert [error["message"] for error in response.body["errors"]] == [refused["message"]]


async def test_superuser_created_after_schema_load_is_rejected(api: Service) -> None:
    api.database.execute("create role upstart superuser; grant upstart to authenticator")
    try:
        for _ in range(2):
            assert (await api.rest("GET", "rpc/who", role="upstart")).status == 403
            assert (await api.ask("{ who }", role="upstart")).status == 403
            await api.reload()
    finally:
        api.database.execute("drop role upstart")


async def test_other_roles_are_served(api: Service) -> None:
    assert (await api.rest("GET", "rpc/who", role="ordinary")).body == "ordinary"


@pytest.fixture(params=[("authenticator", "the login role of db-uri"), ("almighty", "a superuser")])
def anonymous(request: pytest.FixtureRequest, api: Service, reactor: Any) -> Iterator[tuple[Service, str]]:
    """Serve anonymous callers as a forbidden role. Yield the service and the finding of ``check-config``."""
    role, description = request.param
    with serving(reactor, api.database, db_anon_role=role) as service:
        yield service, f"requests run as {role}, which is {description}: they are rejected"


async def test_anonymous_callers_never_run_as_login_role_or_superuser(anonymous: tuple[Service, str]) -> None:
    """``check-config`` also reports a ``db-anon-role`` that is forbidden."""
    service, expected = anonymous
    assert (await service.rest("GET", "item")).status == 403
    assert [finding.text for finding in inspect(service.project) if finding.wrong] == [expected]
