"""Documents: parsed and validated once for a role, their operations ready for variables."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from graphql import (
    ASTValidationRule,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLNonNull,
    OperationDefinitionNode,
    OperationType,
    Undefined,
    coerce_input_literal,
    get_variable_values,
    parse,
    specified_rules,
    type_from_ast,
    validate,
)
from graphql.validation import ProvidedRequiredArgumentsRule
from graphql.validation.rules import overlapping_fields_can_be_merged
from graphql.validation.rules.max_introspection_depth_rule import MaxIntrospectionDepthRule

from dataapi.graphql.answer import Stage
from dataapi.graphql.arguments import ABSENT, Shaper, shaper
from dataapi.graphql.coercion import Coerce, coercer
from dataapi.graphql.entries import ByKeyEntry
from dataapi.graphql.lifting import Lifted, name_of, replace_literals
from dataapi.graphql.limits import Limits, check_length, check_limits, check_variables
from dataapi.graphql.schema import RoleSchema
from dataapi.graphql.together import together

COMPARISONS = 20_000
"""How many pairs of fields the validation of one document may compare, less than a tenth of a second.

graphql-core's own limit is twenty-five times as high, and nobody else is answered meanwhile.
"""
MOST_ERRORS = 20
"""Errors of one document after which validation stops; each may take a search for similar names."""
overlapping_fields_can_be_merged.MAX_COMPLEXITY_BUDGET = COMPARISONS


class Rejected(Exception):
    """A request that is refused before anything runs.

    :ivar stage: how far it came.
    """

    def __init__(self, stage: Stage, *errors: GraphQLError) -> None:
        super().__init__(errors)
        self.stage = stage
        self.errors = errors


class _RequiredArguments(ProvidedRequiredArgumentsRule):
    """The rule but for ``…ByPk`` fields: they name their missing columns (specification, Errors)."""

    entries: Any = None

    def leave_field(self, field_node: FieldNode, *args: Any) -> Any:
        if isinstance(self.entries.find(field_node.name.value), ByKeyEntry):
            return None
        return super().leave_field(field_node, *args)


def _rules(schema: RoleSchema) -> list[type[ASTValidationRule]]:
    """Return the rules that a document of a role is validated by, the same for all of them."""
    known = _RULES.get(schema)
    if known is None:
        required = type("RequiredArguments", (_RequiredArguments,), {"entries": schema.entries})
        rules = [required if rule is ProvidedRequiredArgumentsRule else rule for rule in specified_rules]
        known = _RULES[schema] = [together([*rules, MaxIntrospectionDepthRule])]
    return known


_RULES: WeakKeyDictionary[RoleSchema, list[type[ASTValidationRule]]] = WeakKeyDictionary()


class Operation:
    """One operation of a validated document."""

    def __init__(
        self,
        schema: RoleSchema,
        node: OperationDefinitionNode,
        fragments: Mapping[str, FragmentDefinitionNode],
        literals: Mapping[int, Any],
    ) -> None:
        self._schema = schema
        self._literals = [(name_of(number), shaper(type_)) for number, type_ in literals.items()]
        self.node = node
        self.fragments = fragments

    @property
    def is_mutation(self) -> bool:
        """Whether the operation changes data."""
        return self.node.operation is OperationType.MUTATION

    @cached_property
    def _variables(self) -> list[tuple[str, Any, Any, Shaper, Coerce]]:
        """Name, type, default, shaper and coercer of each variable."""
        found = []
        for definition in self.node.variable_definitions or ():
            type_: Any = type_from_ast(self._schema.schema, definition.type)
            default = ABSENT
            if definition.default_value is not None:
                default = coerce_input_literal(definition.default_value, type_)
            found.append((definition.variable.name.value, type_, default, shaper(type_), coercer(type_)))
        return found

    def coerce(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the coerced variables; absent ones without a default stay absent.

        :raises Rejected: a value is missing or of a wrong type; the error names the variable
            and the place in it.
        """
        coerced: dict[str, Any] = {}
        try:
            check_variables((name, type_, raw.get(name)) for name, type_, *_ in self._variables)
        except GraphQLError as error:
            raise Rejected(Stage.VARIABLES, error) from None
        try:
            for name, type_, default, _, coerce in self._variables:
                value = raw.get(name, ABSENT)
                if value is ABSENT:
                    if default is not ABSENT:
                        coerced[name] = default
                    elif isinstance(type_, GraphQLNonNull):
                        raise self._refusal(raw)
                    continue
                coerced[name] = coerce(value)
                if coerced[name] is Undefined:
                    raise self._refusal(raw)
        except RecursionError:
            raise Rejected(Stage.VARIABLES, GraphQLError("Variable values are nested too deeply.")) from None
        return coerced

    def _refusal(self, raw: Mapping[str, Any]) -> Rejected:
        """Return graphql-core's own errors for variables that did not coerce."""
        definitions = self.node.variable_definitions or ()
        errors = get_variable_values(
            self._schema.schema, definitions, dict(raw), max_errors=MOST_ERRORS, hide_suggestions=True
        )
        assert isinstance(errors, list), "the same coercion failed before"
        return Rejected(Stage.VARIABLES, *errors)

    def shape(self, coerced: Mapping[str, Any]) -> Hashable:
        """Return what of the variables, lifted literals among them, decides how the operation compiles."""
        variables = [
            shape(coerced[name]) if name in coerced else ABSENT for name, _, _, shape, _ in self._variables
        ]
        return (*variables, *[shape(coerced[name]) for name, shape in self._literals])


class Document:
    """A document that passed the limits and validation.

    :ivar text: the text that it was read from.
    :ivar literal_types: the input types of its lifted literals by their number.
    :ivar merges: whether it is valid only for literals of the same pattern.
    :raises Rejected: from the constructor, at the parse or validation stage.
    """

    def __init__(self, text: str, schema: RoleSchema, limits: Limits, lifted: Lifted | None = None) -> None:
        self.text = text
        self.literal_types: Mapping[int, Any] = {}
        self.merges = False
        node = _parse(text, limits)
        try:
            check_limits(node, limits)
            errors = validate(
                schema.schema,
                node,
                _rules(schema),
                max_errors=MOST_ERRORS,
                hide_suggestions=not schema.suggests_names,
            )
        except GraphQLError as error:
            raise Rejected(Stage.VALIDATION, error) from None
        except RecursionError:
            raise Rejected(Stage.VALIDATION, GraphQLError("The document is nested too deeply.")) from None
        if errors:
            raise Rejected(Stage.VALIDATION, *map(_told, errors))
        if lifted is not None:
            replaced = replace_literals(node, schema.schema, lifted)
            node, self.literal_types, self.merges = replaced.document, replaced.types, replaced.merges
        fragments = {
            definition.name.value: definition
            for definition in node.definitions
            if isinstance(definition, FragmentDefinitionNode)
        }
        self.operations = {
            definition.name.value if definition.name else None: Operation(
                schema, definition, fragments, self.literal_types
            )
            for definition in node.definitions
            if isinstance(definition, OperationDefinitionNode)
        }

    def operation(self, name: str | None) -> Operation:
        """Return the operation of that name, or the only one.

        :raises Rejected: there is none, or a name is needed.
        """
        if name is None:
            if len(self.operations) == 1:
                return next(iter(self.operations.values()))
            message = "Must provide operation name if query contains multiple operations."
            raise Rejected(
                Stage.VALIDATION, GraphQLError(message if self.operations else "No operation found")
            )
        operation = self.operations.get(name)
        if operation is None:
            raise Rejected(
                Stage.VALIDATION, GraphQLError(f"Operation not found: no operation is named {name!r}.")
            )
        return operation


def _told(error: GraphQLError) -> GraphQLError:
    """Return a validation error in words that say what to do about it."""
    if error.message != "Validation aborted.":
        return error
    return GraphQLError("The document is too complex: it repeats too many fields or nests too deeply.")


def _parse(text: str, limits: Limits) -> DocumentNode:
    try:
        check_length(text)
        return parse(text, max_lexical_tokens=limits.tokens)
    except GraphQLError as error:
        raise Rejected(Stage.PARSE, error) from None
    except RecursionError:
        raise Rejected(Stage.PARSE, GraphQLError("The document is nested too deeply.")) from None
