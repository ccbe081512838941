"""Documents: parsed and validated once for a role, their operations ready for variables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from graphql import (
    ConstValueNode,
    DocumentNode,
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
    type_from_ast,
    validate_input_literal,
)
from graphql.pyutils import print_path_list

from dataapi.concurrency.pauses import pause
from dataapi.graphql.compatibility import Places, client_name, compatible
from dataapi.graphql.graphql_core import parse_document
from dataapi.graphql.limits import Limits, check_length, check_limits, check_variables
from dataapi.graphql.literal_parameters import ExtractedLiterals, parameter_name, replace_literals
from dataapi.graphql.schema.role_schema import RoleSchema
from dataapi.graphql.schema.shared_types import nullable
from dataapi.graphql.schema.type_mapping import abbreviated
from dataapi.graphql.transport import RequestRejected, Stage
from dataapi.graphql.validation import MOST_ERRORS, client_error, validate_document
from dataapi.graphql.variables import ABSENT, Variable, coercer, faults, shaper

DOCUMENT, TOKEN, LITERAL = 3_000, 330, 650
"""About how many bytes a document takes, and what each of its tokens and extracted literals adds."""


class GraphQLOperation:
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
        self._literals = [(parameter_name(number), shaper(type_)) for number, type_ in literals.items()]
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

        No ``cached_property``: on Python 3.11 it holds a lock while this pauses.

        :raises RequestRejected: a default is invalid at the variable's place.
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

        :raises RequestRejected: a value is missing or of a wrong type; the error names the variable
            and the place in it.
        """
        coerced: dict[str, Any] = {}
        variables = self._variables
        composite = [each for each in variables if isinstance(raw.get(each.name), dict | list)]
        try:
            check_variables((each.name, each.type, raw[each.name]) for each in composite)
        except GraphQLError as error:
            raise RequestRejected(Stage.VARIABLES, error) from None
        for node in self._needed:
            if self._lacks(node, raw):
                raise self._refusal(raw)
        try:
            for variable in variables:
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
            raise RequestRejected(
                Stage.VARIABLES, GraphQLError("Variable values are nested too deeply.")
            ) from None
        return coerced

    @staticmethod
    def _lacks(node: VariableDefinitionNode, raw: Mapping[str, Any]) -> bool:
        """Whether a variable that was declared to have a value has none."""
        name = node.variable.name.value
        return raw[name] is None if name in raw else node.default_value is None

    def _refusal(self, raw: Mapping[str, Any]) -> RequestRejected:
        """Return the errors of variables that did not coerce."""
        errors = list(islice(self._errors(raw), MOST_ERRORS + 1))
        if len(errors) > MOST_ERRORS:
            errors[MOST_ERRORS] = GraphQLError("There are more errors in the variables.")
        assert errors, "the same coercion failed before"
        return RequestRejected(Stage.VARIABLES, *errors)

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
        """Return what of the variables, extracted literals among them, decides how the operation compiles."""
        variables = [
            variable.shape(coerced[variable.inner_name]) if variable.inner_name in coerced else ABSENT
            for variable in self._variables
        ]
        return (*variables, *[shape(coerced[name]) for name, shape in self._literals])


class Document:
    """A document that passed the limits and validation.

    :ivar text: the text that it was read from.
    :ivar literal_types: the input types of its extracted literals by their number.
    :ivar merges: whether it is valid only for literals of the same pattern.
    :ivar is_exact: whether its literals are in it.
    :ivar key: equal for documents of one role that compile to the same plans.
    :ivar weight: about how many bytes it takes.
    :raises RequestRejected: from the constructor, at the parse or validation stage.
    """

    def __init__(
        self, text: str, schema: RoleSchema, limits: Limits, extracted: ExtractedLiterals | None = None
    ) -> None:
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
            errors = validate_document(node, schema)
        except GraphQLError as error:
            raise RequestRejected(Stage.VALIDATION, error) from None
        except RecursionError:
            raise RequestRejected(
                Stage.VALIDATION, GraphQLError("The document is nested too deeply.")
            ) from None
        if errors:
            raise RequestRejected(Stage.VALIDATION, *errors)
        if extracted is not None:
            replaced = replace_literals(node, schema.schema, extracted)
            node, self.literal_types, self.merges = replaced.document, replaced.types, replaced.merges
        self.is_exact = extracted is None
        self.key: Hashable = text
        if extracted is not None:
            self.key = (extracted.shape, extracted.pattern) if self.merges else extracted.shape
        self.weight = DOCUMENT + len(text) + TOKEN * tokens + LITERAL * len(self.literal_types)
        fragments = {
            definition.name.value: definition
            for definition in node.definitions
            if isinstance(definition, FragmentDefinitionNode)
        }
        self.operations = {
            name: GraphQLOperation(
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

    def operation(self, name: str | None) -> GraphQLOperation:
        """Return the operation of that name, or the only one.

        :raises RequestRejected: it does not exist, or a name is needed.
        """
        if name is None:
            if len(self.operations) == 1:
                return next(iter(self.operations.values()))
            message = "Must provide operation name if query contains multiple operations."
            raise RequestRejected(
                Stage.VALIDATION, GraphQLError(message if self.operations else "No operation found")
            )
        operation = self.operations.get(name)
        if operation is None:
            raise RequestRejected(
                Stage.VALIDATION,
                GraphQLError(f"Operation not found: no operation is named {abbreviated(name)}."),
            )
        return operation


def _operations(document: DocumentNode) -> list[OperationDefinitionNode]:
    return [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]


def _name(operation: OperationDefinitionNode) -> str | None:
    return operation.name.value if operation.name else None


def _default(node: ConstValueNode, type_: GraphQLInputType) -> Any:
    """Return the value of a variable's default.

    :raises RequestRejected: the value is invalid.
    """
    value = coerce_input_literal(node, type_)
    if value is Undefined:
        errors: list[GraphQLError] = []
        validate_input_literal(node, type_, lambda error, _place: errors.append(error), hide_suggestions=True)
        raise RequestRejected(Stage.VALIDATION, *map(client_error, errors[:MOST_ERRORS]))
    return value


def _parse(text: str, limits: Limits) -> tuple[DocumentNode, int]:
    try:
        check_length(text)
        return parse_document(text, limits.tokens)
    except GraphQLError as error:
        raise RequestRejected(Stage.PARSE, error) from None
    except RecursionError:
        raise RequestRejected(Stage.PARSE, GraphQLError("The document is nested too deeply.")) from None
