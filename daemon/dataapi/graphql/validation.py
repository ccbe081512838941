"""Validation of a document for a role: graphql-core's rules, merged into one, with pauses and limits.

This depends on insides of graphql-core, as ``graphql_core`` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from graphql import (
    BREAK,
    SKIP,
    ASTValidationRule,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLSchema,
    MaxIntrospectionDepthRule,
    NoUndefinedVariablesRule,
    NoUnusedVariablesRule,
    OverlappingFieldsCanBeMergedRule,
    ParallelVisitor,
    ProvidedRequiredArgumentsRule,
    ValidationContext,
    VariablesInAllowedPositionRule,
    Visitor,
    specified_rules,
    visit,
)
from graphql.language.visitor import EnterLeaveVisitor
from graphql.validation import ASTValidationContext
from graphql.validation.validate import (
    FragmentNestingVisitor,
    ValidationAbortedError,
    query_document_keys_to_validate,
)
from graphql.validation.validation_context import NodeWithSelectionSet, VariableUsage, VariableUsageVisitor

from dataapi.graphql.graphql_core import AcyclicTypeInfoVisitor, PausingTypeInfo
from dataapi.graphql.schema.role_schema import RoleSchema
from dataapi.graphql.schema.root_fields import ByKeyField, QueryFields

COMPARISONS = 12_000
"""How many pairs of fields the validation of one document may compare, less than a tenth of a second.

graphql-core's own limit is forty times as high, and nobody else is answered meanwhile.
"""
MOST_ERRORS = 20
"""Errors of one document after which validation stops; each may take a search for similar names."""

_PYTHON_ERROR = re.compile(", but encountered error '.*'; found: ", re.DOTALL)

_DECLARATIONS = (NoUndefinedVariablesRule, NoUnusedVariablesRule, VariablesInAllowedPositionRule)
"""Rules on how variables are declared, which only ``graphql-validation = strict`` applies."""


def validate_document(document: DocumentNode, schema: RoleSchema) -> list[GraphQLError]:
    """Return a document's errors, after ``MOST_ERRORS`` of them one that says so."""
    errors = validate(
        schema.schema, document, rule_of(schema), MOST_ERRORS, hide_suggestions=not schema.suggests_names
    )
    return [client_error(error) for error in errors]


def client_error(error: GraphQLError) -> GraphQLError:
    """Return a validation error in words that say what to do about it."""
    if error.message == "Validation aborted.":
        return GraphQLError("The document is too complex: it repeats too many fields or nests too deeply.")
    message = without_python(error.message)
    return error if message == error.message else GraphQLError(message, error.nodes)


def without_python(message: str) -> str:
    """Return a message of graphql-core's about a literal without words of Python's."""
    message = _PYTHON_ERROR.sub(", found: ", message)
    return f"{message.removesuffix('None.')}null." if message.endswith("not to be None.") else message


def rule_of(schema: RoleSchema) -> type[ASTValidationRule]:
    """Return the rule that documents of a role are validated by, made once for a schema."""
    rule = _RULES.get(schema)
    if rule is None:
        required = type("RequiredArguments", (_RequiredArguments,), {"fields": schema.query_fields})
        own = {ProvidedRequiredArgumentsRule: required, OverlappingFieldsCanBeMergedRule: _OverlappingFields}
        rules = [
            own.get(each, each) for each in specified_rules if schema.strict or each not in _DECLARATIONS
        ]
        rule = _RULES[schema] = merge_rules([*rules, MaxIntrospectionDepthRule])
    return rule


_RULES: WeakKeyDictionary[RoleSchema, type[ASTValidationRule]] = WeakKeyDictionary()


class _RequiredArguments(ProvidedRequiredArgumentsRule):
    """The rule without ``…ByPk`` fields, whose own error is better (docs/reference/graphql.md, Errors)."""

    fields: QueryFields

    def leave_field(self, field_node: FieldNode, *args: Any) -> Any:
        if isinstance(self.fields.find(field_node.name.value), ByKeyField):
            return None
        return super().leave_field(field_node, *args)


class _OverlappingFields(OverlappingFieldsCanBeMergedRule):
    """The rule with our own limit of comparisons."""

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        self.rule_context.remaining_complexity_budget = COMPARISONS


def validate(
    schema: GraphQLSchema,
    document: DocumentNode,
    rule: type[ASTValidationRule],
    max_errors: int,
    *,
    hide_suggestions: bool = False,
) -> list[GraphQLError]:
    """Return a document's errors as graphql-core's ``validate`` does, with pauses and without cycles."""
    errors: list[GraphQLError] = []

    def on_error(error: GraphQLError) -> None:
        if len(errors) >= max_errors:
            raise ValidationAbortedError(
                "Too many validation errors, error limit reached. Validation aborted."
            )
        errors.append(error)

    types = PausingTypeInfo(schema)
    visitors: list[Visitor] = [rule(_Context(schema, document, types, on_error, hide_suggestions))]
    fragments = {
        node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)
    }
    if fragments:
        visitors.insert(0, FragmentNestingVisitor(fragments))
    try:
        visitor = AcyclicTypeInfoVisitor(types, ParallelVisitor(visitors))
        visit(document, visitor, query_document_keys_to_validate)
    except ValidationAbortedError as error:
        error.__context__ = None  # nor does the error keep the frames of the validation
        errors.append(error.with_traceback(None))
    except RecursionError:
        errors.append(ValidationAbortedError("Validation aborted."))
    return errors


class _Context(ValidationContext):
    """Finds the variables of a definition with pauses and without cycles."""

    def __init__(
        self, schema: GraphQLSchema, document: DocumentNode, types: PausingTypeInfo, *args: Any
    ) -> None:
        super().__init__(schema, document, types, *args)
        self._types = types
        self._usages: dict[NodeWithSelectionSet, list[VariableUsage]] = {}

    def get_variable_usages(self, node: NodeWithSelectionSet) -> list[VariableUsage]:
        """Return the variables that an operation or a fragment uses itself."""
        usages = self._usages.get(node)
        if usages is None:
            fragment = node if isinstance(node, FragmentDefinitionNode) else None
            visitor = VariableUsageVisitor(self._types, fragment)
            visit(node, AcyclicTypeInfoVisitor(self._types, visitor))
            usages = self._usages[node] = visitor.usages
        return usages


_Handler = tuple[int, Callable[..., Any] | None]


def merge_rules(rules: Sequence[type[ASTValidationRule]]) -> type[ASTValidationRule]:
    """Return a rule that reports what all of the rules report, in the same order.

    graphql-core asks each of its thirty rules what it does with each kind of node, anew for every document,
    which takes more than a third of the time of a validation.  That depends on the classes of the rules
    alone, so it is found out once.
    """
    return type("MergedRules", (_MergedRules,), {"rules": tuple(rules), "methods": {}})


class _MergedRules(ASTValidationRule):
    """Visits with several rules, each of which may skip parts of the document or stop.

    :cvar methods: by kind of node, the positions of rules that do something with it and the names
        of their methods, "" for none.
    """

    rules: tuple[type[ASTValidationRule], ...]
    methods: dict[str, tuple[tuple[int, str, str], ...]]

    def __init__(self, context: ASTValidationContext) -> None:
        super().__init__(context)
        self._visitors = [rule(context) for rule in self.rules]
        self._skipping: list[Any] = [None] * len(self._visitors)

    def get_enter_leave_for_kind(self, kind: str) -> EnterLeaveVisitor:
        """Return what the rules merged_rules do with nodes of a kind."""
        found = self.enter_leave_map.get(kind)
        if found is None:
            found = self.enter_leave_map[kind] = self._bind(kind)
        return found

    def _bind(self, kind: str) -> EnterLeaveVisitor:
        names = self.methods.get(kind)
        if names is None:
            names = self.methods[kind] = self._names(kind)
        if not names:
            return EnterLeaveVisitor(None, None)
        visitors = self._visitors
        enters = [(at, getattr(visitors[at], enter)) for at, enter, _ in names if enter]
        # A rule that skipped a node on entering it must know when the node is left.
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
