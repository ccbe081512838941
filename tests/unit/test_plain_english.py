"""Texts avoid habits that make readers stop. CONTRIBUTING.md contains the rules."""

from __future__ import annotations

import re

import pytest
from support.texts import ROOT, Text, texts

HABITS = {
    "clause tacked on": r", (which|whose) [a-z ]+[.;]?$",
    "pronoun for a noun": r"\b(those|the one|the ones|others) that\b",
    "without it, for default": r"\bwithout (it|one|them)[,;]",
    "vague quantity": r"\bso many\b|\bas far as\b",
    "immediately or concurrently": r"\bat once\b",
    "archaic word": r"\b(anew|beside|nobody)\b",
    "by itself": r"\bby itself\b",
    "exists": r"\bis there already\b",
    "what for a noun": r"\bwhat (is|are|has|it) (?!wrong)",
}
FIRST_WORDS = r"^(Of|By|Between|From|For|In|On|With|Without|To|At|As|Those|What|Which|That)\b"
TWO_SPACES = r"[a-z`)][.!?:]  [A-Z`]"
FOLDERS = ["daemon", "docs", "packaging", "plugins", ".", "tests"]
ALLOWED: set[tuple[str, str]] = set()
"""Texts that may contain a habit: the path and a part of the text."""


def faults(text: Text) -> list[str]:
    """Return the names of the habits that a text has."""
    flat = " ".join(text.text.split())
    if text.kind == "message" and text.path.startswith("tests/"):
        return []  # test data
    if any(text.path == path and part in flat for path, part in ALLOWED):
        return []
    found = [name for name, habit in HABITS.items() if re.search(habit, flat)]
    if text.kind == "docstring" and re.search(FIRST_WORDS, flat):
        found.append("docstring begins with a preposition or pronoun")
    if text.kind != "message" and re.search(TWO_SPACES, text.text):
        found.append("two spaces after a sentence")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_avoid_habits_that_make_readers_stop(folder: str) -> None:
    paths = [ROOT / folder] if folder != "." else sorted(ROOT.glob("*.md"))
    lines = [f"{text} ({', '.join(habits)})" for text in texts(*paths) if (habits := faults(text))]
    assert not lines, f"{len(lines)} texts:\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "is_fault"),
    [
        ("Seconds to wait before retrying.", False),
        ("Between which seconds clients connect again.", True),
        ("Return rows, those that changed.", True),
        ("Return a plan, which is cached.", True),
        ("Return a plan, which is cached by role, and its key.", False),
        ("Days until it expires; without it, never.", True),
        ("Return the plan.  It is cached.", True),
    ],
)
def test_habits_are_found(text: str, is_fault: bool) -> None:
    assert bool(faults(Text("x.py", 1, "docstring", text))) is is_fault
