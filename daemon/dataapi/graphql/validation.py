"""Validation of documents: a quick check that most documents pass, and graphql-core's rules.

The check proves in one pass that a common document is valid, in a tenth of the time that the thirty rules
take. The rules validate all other documents and produce the error messages. This module and ``graphql_core``
depend on internals of graphql-core.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import graphql as gql
from graphql.validation.validate import (
    FragmentNestingVisitor,
    ValidationAbortedError,
    query_document_keys_to_validate,
)
from graphql.validation.validation_context import NodeWithSelectionSet, VariableUsage, VariableUsageVisitor

from dataapi.catalog.registry import TableFieldKind
from dataapi.graphql.compatibility import AdaptedDocument
from dataapi.graphql.graphql_core import visit_types
from dataapi.graphql.input_values import MAX_ERRORS
from dataapi.graphql.schema.role_schema import RoleSchema, RootFields, TableField

COMPARISONS = 12_000
"""Maximum number of compared pairs of fields per document.

Comparing them takes less than a tenth of a second. graphql-core's limit is forty times as high.
"""

_PYTHON_ERROR = re.compile(", but encountered error '.*'; found: ", re.DOTALL)


def client_error(error: gql.GraphQLError) -> gql.GraphQLError:
    if error.message == "Validation aborted.":
        return gql.GraphQLError(
            "The document is too complex: it repeats too many fields or nests too deeply."
        )
    message = without_python(error.message)
    return error if message == error.message else gql.GraphQLError(message, error.nodes)


def without_python(message: str) -> str:
    message = _PYTHON_ERROR.sub(", found: ", message)
    return f"{message.removesuffix('None.')}null." if message.endswith("not to be None.") else message


# ---------------------------------------------------------------- the rules

_DECLARATIONS = (gql.NoUndefinedVariablesRule, gql.NoUnusedVariablesRule, gql.VariablesInAllowedPositionRule)
"""Rules for variable declarations. They only apply if ``graphql-validation`` is ``strict``."""


class _RequiredArguments(gql.ProvidedRequiredArgumentsRule):
    """Skips ``…ByPk`` fields, because they have a better error (docs/reference/graphql.md, Errors)."""

    def __init__(self, context: gql.ValidationContext, fields: RootFields) -> None:
        super().__init__(context)
        self._fields = fields

    def leave_field(self, field_node: gql.FieldNode, *args: Any) -> Any:
        match self._fields.find(field_node.name.value):
            case TableField(TableFieldKind.BY_KEY):
                return None
            case _:
                return super().leave_field(field_node, *args)


class _KnownFields(gql.FieldsOnCorrectTypeRule):
    """Adds the reason to the error if a field does not exist because its table has no key."""

    def __init__(self, context: gql.ValidationContext, schema: RoleSchema) -> None:
        super().__init__(context)
        self._schema = schema

    def report_error(self, error: gql.GraphQLError) -> None:
        node = error.nodes[0] if error.nodes else None
        assert isinstance(node, gql.FieldNode), "the rule reports fields"
        reason = self._schema.missing_key(node.name.value)
        if reason is not None:
            error = gql.GraphQLError(f"{error.message} {reason[0].upper()}{reason[1:]}.", error.nodes)
        super().report_error(error)


class _OverlappingFields(gql.OverlappingFieldsCanBeMergedRule):
    def __init__(self, context: gql.ValidationContext) -> None:
        super().__init__(context)
        self.rule_context.remaining_complexity_budget = COMPARISONS


def validate_document(document: gql.DocumentNode, schema: RoleSchema) -> list[gql.GraphQLError]:
    """Return a document's errors like graphql-core's ``validate``, without reference cycles.

    After ``MAX_ERRORS`` errors, the last error reports that there are more.
    """
    errors: list[gql.GraphQLError] = []

    def on_error(error: gql.GraphQLError) -> None:
        if len(errors) >= MAX_ERRORS:
            raise ValidationAbortedError(
                "Too many validation errors, error limit reached. Validation aborted."
            )
        errors.append(error)

    types = gql.TypeInfo(schema.schema)
    context = _Context(schema.schema, document, types, on_error, not schema.suggests_names)
    own: dict[type[gql.ASTValidationRule], Callable[[gql.ValidationContext], gql.ASTValidationRule]] = {
        gql.FieldsOnCorrectTypeRule: partial(_KnownFields, schema=schema),
        gql.ProvidedRequiredArgumentsRule: partial(_RequiredArguments, fields=schema.query_fields),
        gql.OverlappingFieldsCanBeMergedRule: _OverlappingFields,
    }
    visitors: list[gql.Visitor] = [
        own.get(rule, rule)(context)
        for rule in gql.specified_rules
        if schema.strict or rule not in _DECLARATIONS
    ]
    fragments = {
        node.name.value: node for node in document.definitions if isinstance(node, gql.FragmentDefinitionNode)
    }
    if fragments:
        visitors.insert(0, FragmentNestingVisitor(fragments))
    try:
        visit_types(document, types, visitors, query_document_keys_to_validate)
    except ValidationAbortedError as error:
        error.__context__ = None  # so that the error does not keep stack frames in memory
        errors.append(error.with_traceback(None))
    except RecursionError:
        errors.append(ValidationAbortedError("Validation aborted."))
    return [client_error(error) for error in errors]


class _Context(gql.ValidationContext):
    def __init__(
        self, schema: gql.GraphQLSchema, document: gql.DocumentNode, types: gql.TypeInfo, *args: Any
    ) -> None:
        super().__init__(schema, document, types, *args)
        self._types = types
        self._usages: dict[NodeWithSelectionSet, list[VariableUsage]] = {}

    def get_variable_usages(self, node: NodeWithSelectionSet) -> list[VariableUsage]:
        usages = self._usages.get(node)
        if usages is None:
            fragment = node if isinstance(node, gql.FragmentDefinitionNode) else None
            visitor = VariableUsageVisitor(self._types, fragment)
            visit_types(node, self._types, [visitor])
            usages = self._usages[node] = visitor.usages
        return usages


# ---------------------------------------------------------------- the quick check


def is_certainly_valid(adapted: AdaptedDocument, schema: gql.GraphQLSchema) -> bool:
    """Whether a document is certainly valid. If false, the rules may still accept it.

    The document contains no variable definitions, so the types of variables are not checked here.
    """
    document = adapted.document
    if not adapted.arguments_valid:
        return False
    operations: dict[str | None, gql.OperationDefinitionNode] = {}
    fragments: dict[str, gql.FragmentDefinitionNode] = {}
    for node in document.definitions:
        if not isinstance(node, gql.OperationDefinitionNode | gql.FragmentDefinitionNode) or node.directives:
            return False
        if isinstance(node, gql.FragmentDefinitionNode):
            fragments[node.name.value] = node
        elif node.operation is gql.OperationType.SUBSCRIPTION:
            return False  # a rule limits subscriptions to one root field
        else:
            operations[node.name.value if node.name else None] = node
    if len(operations) + len(fragments) < len(document.definitions):
        return False  # duplicate names
    if None in operations and len(operations) > 1:
        return False
    check = _QuickCheck(schema, fragments)
    try:
        return all(map(check.operation, operations.values())) and check.reached == fragments.keys()
    except RecursionError:
        return False


_FieldKey = tuple[object, str] | None
"""Parent type and name of a field. None if the field has arguments or selections."""


_CONDITIONS = frozenset({gql.GraphQLSkipDirective.name, gql.GraphQLIncludeDirective.name})


class _QuickCheck:
    def __init__(
        self, schema: gql.GraphQLSchema, fragments: Mapping[str, gql.FragmentDefinitionNode]
    ) -> None:
        self.reached: set[str] = set()
        self._schema = schema
        self._fragments = fragments
        self._open: set[str] = set()
        self._selections_left = COMPARISONS

    def operation(self, node: gql.OperationDefinitionNode) -> bool:
        root = self._schema.get_root_type(node.operation)
        return root is not None and self._selections(node.selection_set, root, {})

    def _selections(self, node: gql.SelectionSetNode, parent: Any, keys: dict[str, _FieldKey]) -> bool:
        return all(self._selection(selection, parent, keys) for selection in node.selections)

    def _selection(self, node: gql.SelectionNode, parent: Any, keys: dict[str, _FieldKey]) -> bool:
        self._selections_left -= 1
        if self._selections_left < 0 or not self._directives(node.directives or ()):
            return False
        if isinstance(node, gql.FieldNode):
            return self._field(node, parent, keys)
        if isinstance(node, gql.InlineFragmentNode):
            condition = node.type_condition
            target = self._schema.get_type(condition.name.value) if condition else parent
            return self._overlap(target, parent) and self._selections(node.selection_set, target, keys)
        assert isinstance(node, gql.FragmentSpreadNode), "a selection is a field or a fragment"
        return self._spread(node.name.value, parent, keys)

    def _spread(self, name: str, parent: Any, keys: dict[str, _FieldKey]) -> bool:
        fragment = self._fragments.get(name)
        if fragment is None or name in self._open:
            return False
        self.reached.add(name)
        self._open.add(name)
        target = self._schema.get_type(fragment.type_condition.name.value)
        valid = self._overlap(target, parent) and self._selections(fragment.selection_set, target, keys)
        self._open.discard(name)
        return valid

    def _overlap(self, target: Any, parent: Any) -> bool:
        return target is parent or (
            gql.is_composite_type(target) and gql.do_types_overlap(self._schema, target, parent)
        )

    def _field(self, node: gql.FieldNode, parent: Any, keys: dict[str, _FieldKey]) -> bool:
        name, inner, arguments = node.name.value, node.selection_set, node.arguments or ()
        definition = self._schema.get_field(parent, name)
        if definition is None or name in ("__schema", "__type"):
            return False
        type_ = gql.get_named_type(definition.type)
        if gql.is_leaf_type(type_) is not (inner is None):
            return False
        own: _FieldKey = None if inner or arguments else (parent, name)
        key = (node.alias or node.name).value
        if key in keys:
            return own is not None and own == keys[key]
        keys[key] = own
        return inner is None or self._selections(inner, type_, {})

    def _directives(self, nodes: Sequence[gql.DirectiveNode]) -> bool:
        names = [node.name.value for node in nodes]
        return len(set(names)) == len(names) and _CONDITIONS.issuperset(names)
