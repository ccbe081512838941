"""Validation rules run as one.

graphql-core asks each of its thirty rules what it does with each kind of node, anew for every
document, which takes more than a third of the time of a validation.  That depends on the
rules' classes alone, so it is found out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphql import ASTValidationRule
from graphql.language.visitor import BREAK, SKIP, EnterLeaveVisitor
from graphql.validation import ASTValidationContext

_Handler = tuple[int, Callable[..., Any] | None]


def together(rules: Sequence[type[ASTValidationRule]]) -> type[ASTValidationRule]:
    """Return a rule that reports what all of the rules report, in the same order."""
    return type("Together", (_Together,), {"rules": tuple(rules), "known": {}})


class _Together(ASTValidationRule):
    """Visits with several rules, each of which may skip parts of the document or stop.

    :cvar rules: the rules.
    :cvar known: by kind of node, the positions of rules that do something with it and the names
        of their methods, "" for none.
    """

    rules: tuple[type[ASTValidationRule], ...]
    known: dict[str, tuple[tuple[int, str, str], ...]]

    def __init__(self, context: ASTValidationContext) -> None:
        super().__init__(context)
        self._visitors = [rule(context) for rule in self.rules]
        self._skipping: list[Any] = [None] * len(self._visitors)

    def get_enter_leave_for_kind(self, kind: str) -> EnterLeaveVisitor:
        """Return what the rules together do with nodes of a kind."""
        found = self.enter_leave_map.get(kind)
        if found is None:
            found = self.enter_leave_map[kind] = self._bind(kind)
        return found

    def _bind(self, kind: str) -> EnterLeaveVisitor:
        names = self.known.get(kind)
        if names is None:
            names = self.known[kind] = self._names(kind)
        if not names:
            return EnterLeaveVisitor(None, None)
        visitors = self._visitors
        enters = [(at, getattr(visitors[at], enter)) for at, enter, _ in names if enter]
        # A rule that skipped a node on entering it must be told when the node is left.
        leaves = [(at, getattr(visitors[at], leave) if leave else None) for at, _, leave in names]
        return EnterLeaveVisitor(self._entering(enters), self._leaving(leaves))

    def _names(self, kind: str) -> tuple[tuple[int, str, str], ...]:
        found = []
        for at, rule in enumerate(self.rules):
            enter, leave = (
                next((name for name in (f"{what}_{kind}", what) if hasattr(rule, name)), "")
                for what in ("enter", "leave")
            )
            if enter or leave:
                found.append((at, enter, leave))
        return tuple(found)

    def _entering(self, handlers: list[_Handler]) -> Callable[..., Any]:
        skipping = self._skipping

        def enter(node: Any, *arguments: Any) -> None:
            for at, handler in handlers:
                if skipping[at] is None and handler is not None:
                    result = handler(node, *arguments)
                    if result is SKIP or result is False:
                        skipping[at] = node
                    elif result is BREAK or result is True:
                        skipping[at] = BREAK

        return enter

    def _leaving(self, handlers: list[_Handler]) -> Callable[..., Any]:
        skipping = self._skipping

        def leave(node: Any, *arguments: Any) -> None:
            for at, handler in handlers:
                if skipping[at] is None:
                    if handler is not None:
                        result = handler(node, *arguments)
                        if result is BREAK or result is True:
                            skipping[at] = BREAK
                elif skipping[at] is node:
                    skipping[at] = None

        return leave
