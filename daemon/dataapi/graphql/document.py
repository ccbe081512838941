"""Documents: parsed and validated once for a role, their operations ready for variables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from graphql import (
    ASTValidationRule,
    ConstValueNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLInputType,
    NonNullTypeNode,
    OperationDefinitionNode,
    OperationType,
    Undefined,
    VariableDefinitionNode,
    coerce_input_literal,
    print_ast,
    specified_rules,
    type_from_ast,
    validate,
    validate_input_literal,
)
from graphql.pyutils import print_path_list
from graphql.validation import (
    NoUndefinedVariablesRule,
    NoUnusedVariablesRule,
    ProvidedRequiredArgumentsRule,
    VariablesInAllowedPositionRule,
)
from graphql.validation.rules import overlapping_fields_can_be_merged
from graphql.validation.rules.max_introspection_depth_rule import MaxIntrospectionDepthRule

from dataapi.graphql.answer import Stage
from dataapi.graphql.arguments import ABSENT, Shaper, shaper
from dataapi.graphql.coercion import Coerce, coercer, faults
from dataapi.graphql.compatibility import Places, client_name, compatible
from dataapi.graphql.entries import ByKeyEntry
from dataapi.graphql.lifting import Lifted, name_of, replace_literals
from dataapi.graphql.limits import Limits, check_length, check_limits, check_variables
from dataapi.graphql.messages import shown, without_python
from dataapi.graphql.parsing import parse_document
from dataapi.graphql.schema import RoleSchema
from dataapi.graphql.together import together
from dataapi.graphql.wrappers import nullable
from dataapi.pauses import pause

COMPARISONS = 12_000
"""How many pairs of fields the validation of one document may compare, less than a tenth of a second.

graphql-core's own limit is forty times as high, and nobody else is answered meanwhile.
"""
MOST_ERRORS = 20
"""Errors of one document after which validation stops; each may take a search for similar names."""
overlapping_fields_can_be_merged.MAX_COMPLEXITY_BUDGET = COMPARISONS


DOCUMENT, TOKEN, LITERAL = 3_000, 330, 650
"""About how many bytes a document takes, and what each of its tokens and lifted literals adds."""


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


_DECLARATIONS = (NoUndefinedVariablesRule, NoUnusedVariablesRule, VariablesInAllowedPositionRule)
"""Rules on how variables are declared, which only ``graphql-validation = strict`` applies."""


def _rules(schema: RoleSchema) -> list[type[ASTValidationRule]]:
    """Return the rules that a document of a role is validated by, the same for all of them."""
    known = _RULES.get(schema)
    if known is None:
        required = type("RequiredArguments", (_RequiredArguments,), {"entries": schema.entries})
        rules = [
            required if rule is ProvidedRequiredArgumentsRule else rule
            for rule in specified_rules
            if schema.strict or rule not in _DECLARATIONS
        ]
        known = _RULES[schema] = [together([*rules, MaxIntrospectionDepthRule])]
    return known


_RULES: WeakKeyDictionary[RoleSchema, list[type[ASTValidationRule]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of an operation, ready to take values.

    :ivar name: what the client calls it.
    :ivar inner_name: what the operation calls it.
    :ivar default: its default's value, ``ABSENT`` for none.
    """

    name: str
    inner_name: str
    type: GraphQLInputType
    default: Any
    shape: Shaper
    coerce: Coerce
    node: VariableDefinitionNode


class Operation:
    """One operation of a validated document.

    :param declared: its variables as the client declared them.
    :param places: where its variables are used, None when they are judged as they are declared.
    :ivar key: equal for operations of one role that compile to the same plans; it holds no document.
    """

    def __init__(
        self,
        schema: RoleSchema,
        node: OperationDefinitionNode,
        declared: Sequence[VariableDefinitionNode],
        places: Places | None,
        fragments: Mapping[str, FragmentDefinitionNode],
        literals: Mapping[int, Any],
        *,
        key: Hashable,
    ) -> None:
        self._schema = schema
        self._literals = [(name_of(number), shaper(type_)) for number, type_ in literals.items()]
        self._declared = declared
        self._places = places
        self._needed = [node for node in declared if isinstance(node.type, NonNullTypeNode)]
        self._known: list[Variable] | None = None
        self.node = node
        self.fragments = fragments
        self.key = key

    @property
    def is_mutation(self) -> bool:
        """Whether the operation changes data."""
        return self.node.operation is OperationType.MUTATION

    @property
    def declarations(self) -> Sequence[VariableDefinitionNode]:
        """The declarations that its variables are judged by."""
        if self._places is None:
            return self._declared
        return self._places.declarations(_name(self.node), self._declared)

    @property
    def _variables(self) -> list[Variable]:
        """The variables with the types that their values must have; that one is needed is seen before.

        No ``cached_property``, which lets nobody else in while it pauses.

        :raises Rejected: a default is none of the type of the variable's place.
        """
        if self._known is not None:
            return self._known
        found = []
        for node in self.declarations:
            pause()
            type_: Any = type_from_ast(self._schema.schema, node.type)
            default = ABSENT if node.default_value is None else _default(node.default_value, type_)
            name, type_ = node.variable.name.value, nullable(type_)
            variable = Variable(client_name(name), name, type_, default, shaper(type_), coercer(type_), node)
            found.append(variable)
        self._known = found
        return found

    def coerce(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the coerced variables; absent ones without a default stay absent.

        :raises Rejected: a value is missing or of a wrong type; the error names the variable
            and the place in it.
        """
        coerced: dict[str, Any] = {}
        try:
            check_variables(
                (variable.name, variable.type, raw.get(variable.name)) for variable in self._variables
            )
        except GraphQLError as error:
            raise Rejected(Stage.VARIABLES, error) from None
        for node in self._needed:
            if self._lacks(node, raw):
                raise self._refusal(raw)
        try:
            for variable in self._variables:
                value = raw.get(variable.name, ABSENT)
                if value is not ABSENT:
                    value = variable.coerce(value)
                    if value is Undefined:
                        raise self._refusal(raw)
                elif variable.default is not ABSENT:
                    value = variable.default
                else:
                    continue
                coerced[variable.inner_name] = value
        except RecursionError:
            raise Rejected(Stage.VARIABLES, GraphQLError("Variable values are nested too deeply.")) from None
        return coerced

    @staticmethod
    def _lacks(node: VariableDefinitionNode, raw: Mapping[str, Any]) -> bool:
        """Whether a variable that was declared to have a value has none."""
        name = node.variable.name.value
        return raw[name] is None if name in raw else node.default_value is None

    def _refusal(self, raw: Mapping[str, Any]) -> Rejected:
        """Return the errors of variables that did not coerce."""
        errors = list(islice(self._errors(raw), MOST_ERRORS + 1))
        if len(errors) > MOST_ERRORS:
            errors[MOST_ERRORS] = GraphQLError("There are more errors in the variables.")
        assert errors, "the same coercion failed before"
        return Rejected(Stage.VARIABLES, *errors)

    def _errors(self, raw: Mapping[str, Any]) -> Iterator[GraphQLError]:
        for node in self._needed:
            if self._lacks(node, raw):
                name = node.variable.name.value
                what = "not to be null" if name in raw else "to be provided"
                message = f"Expected a value of non-null type '{print_ast(node.type)}' {what}."
                yield GraphQLError(f"Variable '${name}' has invalid value: {message}", node)
        for variable in self._variables:
            name = variable.name
            for place, message in faults(raw.get(name), variable.type):
                where = print_path_list(place)
                yield GraphQLError(f"Variable '${name}' has invalid value{where}: {message}", variable.node)

    def shape(self, coerced: Mapping[str, Any]) -> Hashable:
        """Return what of the variables, lifted literals among them, decides how the operation compiles."""
        variables = [
            variable.shape(coerced[variable.inner_name]) if variable.inner_name in coerced else ABSENT
            for variable in self._variables
        ]
        return (*variables, *[shape(coerced[name]) for name, shape in self._literals])


class Document:
    """A document that passed the limits and validation.

    :ivar text: the text that it was read from.
    :ivar literal_types: the input types of its lifted literals by their number.
    :ivar merges: whether it is valid only for literals of the same pattern.
    :ivar is_exact: whether its literals are in it.
    :ivar key: equal for documents of one role that compile to the same plans.
    :ivar weight: about how many bytes it takes.
    :raises Rejected: from the constructor, at the parse or validation stage.
    """

    def __init__(self, text: str, schema: RoleSchema, limits: Limits, lifted: Lifted | None = None) -> None:
        self.text = text
        self.literal_types: Mapping[int, Any] = {}
        self.merges = False
        node, tokens = _parse(text, limits)
        declared = {_name(operation): operation.variable_definitions for operation in _operations(node)}
        places: Places | None = None
        try:
            check_limits(node, limits)
            if not schema.strict:
                node, places = compatible(node, schema.schema)
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
        self.is_exact = lifted is None
        self.key: Hashable = text
        if lifted is not None:
            self.key = (lifted.shape, lifted.pattern) if self.merges else lifted.shape
        self.weight = DOCUMENT + len(text) + TOKEN * tokens + LITERAL * len(self.literal_types)
        fragments = {
            definition.name.value: definition
            for definition in node.definitions
            if isinstance(definition, FragmentDefinitionNode)
        }
        self.operations = {
            name: Operation(
                schema,
                operation,
                declared[name] or (),
                places,
                fragments,
                self.literal_types,
                key=(self.is_exact, self.key, name),
            )
            for name, operation in ((_name(operation), operation) for operation in _operations(node))
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
                Stage.VALIDATION, GraphQLError(f"Operation not found: no operation is named {shown(name)}.")
            )
        return operation


def _operations(document: DocumentNode) -> list[OperationDefinitionNode]:
    return [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]


def _name(operation: OperationDefinitionNode) -> str | None:
    return operation.name.value if operation.name else None


def _default(node: ConstValueNode, type_: GraphQLInputType) -> Any:
    """Return the value of a variable's default.

    :raises Rejected: it is none of the type.
    """
    value = coerce_input_literal(node, type_)
    if value is Undefined:
        errors: list[GraphQLError] = []
        validate_input_literal(node, type_, lambda error, _place: errors.append(error), hide_suggestions=True)
        raise Rejected(Stage.VALIDATION, *map(_told, errors[:MOST_ERRORS]))
    return value


def _told(error: GraphQLError) -> GraphQLError:
    """Return a validation error in words that say what to do about it."""
    if error.message == "Validation aborted.":
        return GraphQLError("The document is too complex: it repeats too many fields or nests too deeply.")
    message = without_python(error.message)
    return error if message == error.message else GraphQLError(message, error.nodes)


def _parse(text: str, limits: Limits) -> tuple[DocumentNode, int]:
    try:
        check_length(text)
        return parse_document(text, limits.tokens)
    except GraphQLError as error:
        raise Rejected(Stage.PARSE, error) from None
    except RecursionError:
        raise Rejected(Stage.PARSE, GraphQLError("The document is nested too deeply.")) from None
