"""Browser actions for tests of the console."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import jwt
from support.daemon import JWT_SECRET, KEY, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page


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


def obstacles(page: Page) -> list[str]:
    """Return the serious and critical problems found by axe, one line per element."""
    page.evaluate(_axe())
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{page.url} {violation['id']} ({violation['help']}): {node['html'][:200]}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def show_in(page: Page, theme: str) -> None:
    """Set the theme of all pages opened from now on."""
    page.add_init_script(f"localStorage.setItem('dataapi.theme', '{theme}')")
