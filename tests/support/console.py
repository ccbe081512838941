"""Browser actions for tests of the console."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import jwt
from support.daemon import JWT_SECRET, KEY, PATIENCE, wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request


@contextmanager
def checked_page(
    browser: Browser, origin: str, refused: Collection[str], **options: object
) -> Iterator[Page]:
    """Yield a new tab. The test fails if the page logs an error or sends requests to another origin.

    :param refused: path prefixes whose requests may fail.
    """
    settings = {"base_url": origin, "color_scheme": "light", **options}
    context = browser.new_context(**settings)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE * 1000)
    opened = context.new_page()
    problems: list[str] = []

    def check_message(message: ConsoleMessage) -> None:
        path = message.location["url"].removeprefix(origin)
        expected = "a status of 4" in message.text and path.startswith(tuple(refused))
        if message.type == "error" and not expected:
            problems.append(f"{path}: {message.text}")

    def check_request(request: Request) -> None:
        if not request.url.startswith((f"{origin}/", "data:")):
            problems.append(f"asked {request.url}")

    opened.on("console", check_message)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", check_request)
    yield opened
    context.close()
    assert problems == []


def token(role: str, **claims: object) -> str:
    """Return a token that is valid for ten minutes."""
    return jwt.encode({"role": role, "exp": int(time.time()) + 600, **claims}, JWT_SECRET, "HS256")


def act_as(page: Page, role: str, **claims: object) -> None:
    """Set the role for API calls of all pages opened from now on."""
    kind = {"anon": "anonymous", "service_role": "service"}.get(role, "user")
    chosen = {"kind": kind, "apiKey": KEY, "token": "" if role == "anon" else token(role, **claims)}
    page.add_init_script(f"sessionStorage.setItem('dataapi.identity', JSON.stringify({json.dumps(chosen)}))")


@contextmanager
def copying(page: Page) -> Iterator[list[str]]:
    """Yield a list that will contain the text that the page copies to the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('')")
    copied: list[str] = []
    yield copied
    copied.append(wait_for(lambda: page.evaluate("navigator.clipboard.readText()"), "the copied text"))


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def obstacles(page: Page, part: str = "html") -> list[str]:
    """Return the serious and critical problems found by axe, one line per element.

    :param part: selector of the part of the page to check.
    """
    page.evaluate(_axe())
    found = page.evaluate("part => axe.run(part, { resultTypes: ['violations'] })", part)
    return [
        f"{page.url} {violation['id']} ({violation['help']}): {node['html'][:200]}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def show_in(page: Page, theme: str) -> None:
    """Set the theme of all pages opened from now on."""
    page.add_init_script(f"localStorage.setItem('dataapi.theme', '{theme}')")
