"""The console in a browser, with a real daemon and PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import jwt
import pytest
from playwright.sync_api import expect
from support.console import copying, token
from support.daemon import JWT_SECRET, KEY, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

QUERY = "{ noteCollection { edges { node { title } } } }"


def _open_graphql(page: Page) -> None:
    page.goto("/console/graphql")
    page.get_by_role("button", name="Execute query").wait_for()


def _titles(page: Page, *, shown: str, hidden: str = "none") -> None:
    """Run ``QUERY`` and check that the result contains the title ``shown`` but not ``hidden``."""
    editor = page.get_by_role("region", name="Query Editor")
    editor.locator(".CodeMirror").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(QUERY)
    page.get_by_role("button", name="Execute query").click()
    result = page.get_by_role("region", name="Result Window")
    result.get_by_text(f'"{shown}"').wait_for()
    assert hidden not in result.inner_text()


def _choose(page: Page, kind: str) -> None:
    page.get_by_role("button", name="Calling as").click()
    page.get_by_role("radio", name=kind).check()


def _token_of_ada() -> str:
    claims = {"role": "authenticated", "sub": "ada", "exp": int(time.time()) + 600}
    return jwt.encode(claims, JWT_SECRET, "HS256")


def test_root_path_opens_the_console(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Execute query").wait_for()
    assert page.url.endswith("/console/graphql")
    assert page.title() == "GraphQL · abcdefghijklmnopqrst"


def test_query_result_depends_on_the_chosen_role(page: Page) -> None:
    _open_graphql(page)
    _titles(page, shown="For all", hidden="For Ada")

    _choose(page, "Signed-in user")
    page.get_by_label("Token (JWT)").fill(_token_of_ada())
    page.get_by_role("button", name="Use it").click()
    page.get_by_role("button", name="Calling as User ada").wait_for()
    _titles(page, shown="For Ada", hidden="For Bo")

    _choose(page, "Signed-in user")
    page.get_by_role("button", name="Sign one here").click()
    page.get_by_label("JWT secret").fill(JWT_SECRET)
    page.get_by_label("sub").fill("bo")
    page.get_by_role("button", name="Use it").click()
    page.get_by_role("button", name="Calling as User bo").wait_for()
    _titles(page, shown="For Bo", hidden="For Ada")

    stored = page.evaluate("JSON.stringify(localStorage)")
    tab = page.evaluate("JSON.parse(sessionStorage.getItem('dataapi.identity'))")
    for secret in (JWT_SECRET, tab["token"], tab["apiKey"]):
        assert secret not in stored
    assert JWT_SECRET not in page.evaluate("JSON.stringify(sessionStorage)")

    _choose(page, "Anonymous")
    page.get_by_role("button", name="Use it").click()
    page.get_by_role("button", name="Calling as Anonymous").wait_for()
    _titles(page, shown="For all", hidden="For Bo")


def test_invalid_token_is_rejected_with_the_reason(page: Page) -> None:
    _open_graphql(page)
    _choose(page, "service_role")
    page.get_by_label("Token (JWT)").fill("sb_secret_of_nobody")
    page.get_by_role("button", name="Use it").click()
    assert "secret API key" in page.get_by_role("alert").inner_text()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Calling as Anonymous").wait_for()


@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        (
            "Publishable API key",
            "sb_publishable_of_nobody",
            "Invalid API key. Enter the project's publishable",
        ),
        (
            "Token (JWT)",
            "e30.e30.e30",
            "Wrong or unsupported encoding algorithm. The token was not issued for this",
        ),
        ("Token (JWT)", "expired", "JWT expired. The token has expired"),
        ("Token (JWT)", "of a stranger", "The token's role does not exist in the database"),
    ],
)
def test_wrong_key_or_token_shows_a_hint(
    page: Page, refused: set[str], field: str, wrong: str, message: str
) -> None:
    """The dialog remains open, and the rejected key or token is not used in other requests."""
    refused.add("/console/data/identity")
    _open_graphql(page)
    _choose(page, "Signed-in user")
    tokens = {
        "expired": jwt.encode({"role": "authenticated", "exp": 1}, JWT_SECRET, "HS256"),
        "of a stranger": token("stranger"),
    }
    page.get_by_label("Token (JWT)").fill(_token_of_ada())
    page.get_by_label(field).fill(tokens.get(wrong, wrong))
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text(message)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Calling as Anonymous").wait_for()


@pytest.mark.parametrize("name", ["graphql", "rest", "schema"])
def test_page_with_a_wrong_key_offers_the_identity_dialog(page: Page, refused: set[str], name: str) -> None:
    refused |= {"/console/data/", "/graphql/v1", "/rest/v1/"}
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    who = {"kind": "anonymous", "apiKey": "sb_publishable_of_nobody", "token": ""}
    page.add_init_script(f"sessionStorage.setItem('dataapi.identity', JSON.stringify({json.dumps(who)}))")
    page.goto(f"/console/{name}")
    notice = page.get_by_role("alert").first
    expect(notice).to_contain_text("Enter the project's publishable API key")
    assert ".." not in notice.inner_text()
    notice.get_by_role("button", name="Change the key or token").click()
    dialog = page.get_by_role("dialog", name="Call the APIs as")
    dialog.get_by_label("Publishable API key").fill(KEY)
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("Enter the project's publishable API key")).to_have_count(0)
    assert len([url for url in urls if "/v1" in url]) < 10


def test_rejected_rest_request_offers_the_identity_dialog(page: Page, refused: set[str]) -> None:
    refused.add("/rest/v1/")
    page.goto("/console/rest")
    page.get_by_label("Address, after /rest/v1/").fill("note?id=eq.1")
    page.get_by_role("button", name="DELETE").wait_for()
    draft = json.dumps(json.dumps({"method": "DELETE", "target": "note?id=eq.1"}))
    page.evaluate(f"sessionStorage.setItem('dataapi.request', {draft})")
    page.reload()
    page.get_by_role("button", name="Send").click()
    result = page.get_by_role("region", name="Answer").get_by_role("alert")
    expect(result).to_contain_text("This requires a token. Choose a role with the privilege.")
    result.get_by_role("button", name="Change the key or token").click()
    expect(page.get_by_role("dialog", name="Call the APIs as")).to_be_visible()


def test_chosen_theme_overrides_the_system_theme(page: Page) -> None:
    _open_graphql(page)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Use the dark theme").click()
    page.get_by_role("button", name="Use the light theme").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    page.get_by_role("button", name="Use the light theme").wait_for()


@pytest.mark.parametrize("width", [375, 768, 1440])
def test_page_fits_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    _open_graphql(page)
    for link in page.get_by_role("navigation", name="Pages").get_by_role("link").all():
        expect(link).to_be_in_viewport(ratio=1)
    _titles(page, shown="For all")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_copied_program_does_not_contain_the_token(page: Page) -> None:
    _open_graphql(page)
    _choose(page, "Signed-in user")
    token = _token_of_ada()
    page.get_by_label("Token (JWT)").fill(token)
    page.get_by_role("button", name="Use it").click()
    _titles(page, shown="For Ada")
    with copying(page) as copied:
        page.get_by_role("button", name="Copy as a program").click()
        page.get_by_role("menuitem", name="Copy as curl").click()
    [command] = copied
    assert token not in command
    printed = subprocess.run(
        ["/bin/sh", "-c", command.replace("curl ", "curl --silent ", 1)],
        env={**os.environ, "TOKEN": token},
        capture_output=True,
        check=True,
    )
    assert "For Ada" in printed.stdout.decode()


def test_editor_headers_are_not_stored_in_the_browser(page: Page) -> None:
    _open_graphql(page)
    page.get_by_role("button", name="Headers", exact=True).click()
    page.get_by_role("region", name="Headers").locator(".graphiql-editor:not(.hidden) > .CodeMirror").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text('{"x-secret": "a secret header"}')
    _titles(page, shown="For all")
    stored = "(localStorage.getItem('graphiql:tabState') ?? '').includes('noteCollection')"
    wait_for(lambda: page.evaluate(stored), "the tab")
    assert "a secret header" not in page.evaluate("JSON.stringify(localStorage)")


def test_schema_without_introspection_shows_how_to_enable_it(page: Page) -> None:
    result = {"errors": [{"message": 'Unknown field "__schema" on type Query'}]}
    page.route("**/graphql/v1", lambda route: route.fulfill(json=result))
    _open_graphql(page)
    page.get_by_text("comment on schema public is").wait_for()
