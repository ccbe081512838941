"""Parsing, limits and validation of documents, and coercion of variables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLInputType,
    InlineFragmentNode,
    Node,
    NonNullTypeNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    Undefined,
    VariableDefinitionNode,
    print_ast,
    validate_input_literal,
)
from graphql.pyutils import print_path_list

from dataapi.graphql.compatibility import AdaptedDocument, adapt, client_name
from dataapi.graphql.graphql_core import parse_document
from dataapi.graphql.input_values import (
    MAX_ERRORS,
    MAX_INPUT_OBJECTS,
    InputLimitExceeded,
    InputPath,
    InputType,
    LiteralReading,
    Reading,
    VariableUse,
    input_type,
    path_steps,
    with_enum_values,
)
from dataapi.graphql.literal_parameters import ExtractedParameters, Parameters
from dataapi.graphql.schema.role_schema import RoleSchema
from dataapi.graphql.schema.type_mapping import abbreviated
from dataapi.graphql.sources import Shape
from dataapi.graphql.transport import RequestRejected, Stage
from dataapi.graphql.validation import client_error, is_certainly_valid, validate_document

LONGEST_DOCUMENT = 1_000_000
"""Maximum length of a document, in characters."""
MAX_SELECTIONS = 5_000
"""Maximum number of selections in a selection set. Validation compares selections with each other."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a document or operation.

    :ivar depth: maximum nesting of fields, including fragments.
    :ivar aliases: maximum number of aliases in an operation. Fragments count at each spread.
    :ivar cost: maximum number of rows that an operation may touch.
    """

    depth: int = 50
    aliases: int = 1_000
    tokens: int = 20_000
    cost: int = 5_000_000


DOCUMENT, TOKEN, LITERAL = 3_000, 330, 200
"""Approximate sizes of a document, a token and an extracted literal, in bytes."""


class OperationPlanInput(NamedTuple):
    """The input of the compiler: everything that determines the plan. It is the key of cached plans.

    :ivar shapes: the shapes of variables and literal parameters in the operation's order, ``Undefined`` for a
        variable without a value.
    :ivar failed: the errors of root fields whose values cannot be bound, by response key.
    """

    operation: Hashable
    shapes: tuple[Shape, ...] = ()
    failed: tuple[tuple[str, GraphQLError], ...] = ()


class CoercedRequest(NamedTuple):
    """The coerced variables and parameters of a request by name, and the compiler's input."""

    input: OperationPlanInput
    variables: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of an operation. ``default`` contains the default value and its shape.

    ``name`` is used in the client's text, ``inner_name`` in the adapted document.
    """

    name: str
    inner_name: str
    type: GraphQLInputType
    input: InputType
    default: tuple[Any, Shape] | None
    node: Node


class GraphQLOperation:
    """An operation of a validated document. ``root`` is the name of its root type.

    :ivar key: a value that is equal for operations of a role that compile to the same plans. The key contains
        no reference to the document.
    :ivar is_subscription: whether the operation is executed again when its result changes.
    """

    def __init__(
        self,
        adapted: AdaptedDocument,
        node: OperationDefinitionNode,
        declared: Sequence[VariableDefinitionNode],
        fragments: Mapping[str, FragmentDefinitionNode],
        root: str,
        key: Hashable,
    ) -> None:
        self.adapted = adapted
        self._required = {
            node.variable.name.value: node for node in declared if isinstance(node.type, NonNullTypeNode)
        }
        self._declared = {node.variable.name.value: node for node in declared}
        self._variables: list[Variable] | None = None
        self.node = node
        self.root = root
        self.is_mutation = node.operation is OperationType.MUTATION
        self.is_subscription = node.operation is OperationType.SUBSCRIPTION
        self.fragments = fragments
        self.key = key

    def variables(self) -> list[Variable]:
        if self._variables is None:
            self._variables = [
                _variable(use, self._declared.get(client_name(use.name)))
                for use in self.adapted.variables(_name(self.node))
            ]
        return self._variables

    def shapes(self, plan_input: OperationPlanInput) -> dict[str, Shape]:
        names = (*(each.inner_name for each in self.variables()), *self.adapted.literal_types)
        shapes = zip(names, plan_input.shapes, strict=True)
        return {name: shape for name, shape in shapes if shape is not Undefined}

    def coerce(self, raw: Mapping[str, Any], parameters: Parameters) -> CoercedRequest:
        """Return the coerced variables and the parameters. Variables without a value or default are omitted.

        :raises RequestRejected: a value is missing or invalid. The errors contain the variable's name and the
            value's path in the variable.
        """
        coerced, shapes = dict(parameters.values), list[Shape]()
        reading = Reading()
        try:
            for variable in self._variables or self.variables():
                if variable.name in raw:
                    value = variable.input.read(raw[variable.name], shapes, reading, (), variable)
                elif variable.default is not None:
                    value, shape = variable.default
                    shapes.append(shape)
                else:
                    shapes.append(Undefined)
                    continue
                coerced[variable.inner_name] = value
        except RecursionError:
            raise RequestRejected(Stage.VARIABLES, "Variable values are nested too deeply.") from None
        except InputLimitExceeded:
            if reading.objects < 0:
                message = (
                    f"The variable '${variable.name}' contains too many input objects: {MAX_INPUT_OBJECTS} "
                    "are allowed in one request, not counting inserted rows that all have the same members."
                )
                raise RequestRejected(Stage.VARIABLES, message) from None
        if reading.errors or None in map(raw.get, self._required):
            self._reject(raw, reading)
        return CoercedRequest(OperationPlanInput(self.key, (*shapes, *parameters.shapes)), coerced)

    def _reject(self, raw: Mapping[str, Any], reading: Reading) -> None:
        errors = []
        for name, node in self._required.items():
            if raw.get(name) is None and (name in raw or node.default_value is None):
                expectation = "not to be null" if name in raw else "to be provided"
                message = f"Expected a value of non-null type '{print_ast(node.type)}' {expectation}."
                errors.append(GraphQLError(f"Variable '${name}' has invalid value: {message}", node))
        errors += starmap(_value_error, reading.errors)
        if len(errors) > MAX_ERRORS:
            errors[MAX_ERRORS:] = [GraphQLError("There are more errors in the variables.")]
        if errors:
            raise RequestRejected(Stage.VARIABLES, *errors)


def _value_error(path: InputPath, message: str) -> GraphQLError:
    variable, *steps = path_steps(path)
    position = print_path_list(steps)
    return GraphQLError(f"Variable '${variable.name}' has invalid value{position}: {message}", variable.node)


class Document:
    """A validated document within the limits.

    :param extracted: the literals and aliases extracted from the text, None to leave them in the document.
    :ivar literal_types: the types of extracted literals, by parameter name.
    :ivar is_exact: whether the document contains its literals and aliases, not parameters in their place.
    :ivar key: a value that is equal for documents of a role that compile to the same plans.
    :ivar weight: the approximate size in bytes.
    :raises RequestRejected: the text cannot be parsed, is invalid or exceeds a limit.
    """

    def __init__(
        self, text: str, schema: RoleSchema, limits: Limits, extracted: ExtractedParameters | None = None
    ) -> None:
        node, tokens = _parse(text, limits)
        try:
            check_limits(node, limits)
            adapted = None if extracted is None else _shared(node, schema, extracted)
            self.is_exact = adapted is None
            if adapted is None:
                adapted = _valid(node, schema)
        except GraphQLError as error:
            raise RequestRejected(Stage.VALIDATION, error) from None
        except RecursionError:
            raise RequestRejected(Stage.VALIDATION, "The document is nested too deeply.") from None
        self.text = text
        self.literal_types = adapted.literal_types
        self.key = text if extracted is None or self.is_exact else extracted.shape
        self.weight = DOCUMENT + len(text) + TOKEN * tokens + LITERAL * len(self.literal_types)
        self.operations = dict(self._operations(node, adapted, schema))

    def _operations(
        self, node: DocumentNode, adapted: AdaptedDocument, schema: RoleSchema
    ) -> Iterator[tuple[str | None, GraphQLOperation]]:
        declarations = {_name(each): each.variable_definitions or () for each in _operation_nodes(node)}
        fragments = {
            definition.name.value: definition
            for definition in adapted.document.definitions
            if isinstance(definition, FragmentDefinitionNode)
        }
        for operation in _operation_nodes(adapted.document):
            name = _name(operation)
            key, root = (self.is_exact, self.key, name), schema.root(operation.operation)
            yield name, GraphQLOperation(adapted, operation, declarations[name], fragments, root, key)

    def operation(self, name: str | None) -> GraphQLOperation:
        """Return the operation with a name, or the document's only operation if ``name`` is None.

        :raises RequestRejected: there is no such operation, or a name is required.
        """
        if name is None:
            if len(self.operations) == 1:
                return next(iter(self.operations.values()))
            message = "Must provide operation name if query contains multiple operations."
            raise RequestRejected(Stage.VALIDATION, message if self.operations else "No operation found")
        operation = self.operations.get(name)
        if operation is None:
            message = f"Operation not found: no operation is named {abbreviated(name)}."
            raise RequestRejected(Stage.VALIDATION, message)
        return operation


def _shared(node: DocumentNode, schema: RoleSchema, extracted: ExtractedParameters) -> AdaptedDocument | None:
    """Return a valid document with parameters for literals and aliases.

    Return None if fields may be merged: their literals must be equal, and parameters cannot guarantee that.
    """
    adapted = adapt(node, schema.schema, extracted.names_by_offset, strict=schema.strict)
    if adapted.merges:
        return None
    if schema.strict or not is_certainly_valid(adapted, schema.schema):
        _valid(node, schema)
    return adapted


def _valid(node: DocumentNode, schema: RoleSchema) -> AdaptedDocument:
    adapted = adapt(node, schema.schema, strict=schema.strict)
    if schema.strict or not is_certainly_valid(adapted, schema.schema):
        errors = validate_document(node if schema.strict else adapted.for_rules(), schema)
        if errors:
            raise RequestRejected(Stage.VALIDATION, *errors)
    return adapted


def _operation_nodes(document: DocumentNode) -> list[OperationDefinitionNode]:
    return [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]


def _name(operation: OperationDefinitionNode) -> str | None:
    return operation.name.value if operation.name else None


def _variable(use: VariableUse, declared: VariableDefinitionNode | None) -> Variable:
    type_, default = use.type, None
    if declared is not None and declared.default_value is not None:
        reading = LiteralReading()
        default = reading.constant(declared.default_value, type_)
        if default is None:
            errors: list[GraphQLError] = []
            node = with_enum_values(declared.default_value, reading.enum_strings)
            validate_input_literal(
                node, type_, lambda error, _path: errors.append(error), hide_suggestions=True
            )
            raise RequestRejected(Stage.VALIDATION, *map(client_error, errors[:MAX_ERRORS]))
    name = client_name(use.name)
    return Variable(name, use.name, type_, input_type(type_), default, declared or use.node)


def _parse(text: str, limits: Limits) -> tuple[DocumentNode, int]:
    try:
        if len(text) > LONGEST_DOCUMENT:
            raise GraphQLError(
                f"The document has {len(text)} characters, more than the {LONGEST_DOCUMENT} allowed: "
                "send long values as variables."
            )
        return parse_document(text, limits.tokens)
    except GraphQLError as error:
        raise RequestRejected(Stage.PARSE, error) from None
    except RecursionError:
        raise RequestRejected(Stage.PARSE, "The document is nested too deeply.") from None


# ---------------------------------------------------------------- limits


class _Measurer:
    def __init__(self, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self._measured: dict[str, tuple[int, int]] = {}

    def measure(self, selection_set: SelectionSetNode | None) -> tuple[int, int]:
        if selection_set is None:
            return 0, 0
        if len(selection_set.selections) > MAX_SELECTIONS:
            raise GraphQLError(
                f"A selection set has more than the {MAX_SELECTIONS} fields allowed.", selection_set
            )
        depth = aliases = 0
        for selection in selection_set.selections:
            if isinstance(selection, FragmentSpreadNode):
                inner, more = self._fragment(selection.name.value)
            else:
                assert isinstance(selection, FieldNode | InlineFragmentNode), "there are no other selections"
                inner, more = self.measure(selection.selection_set)
            if isinstance(selection, FieldNode):
                inner += 1
                more += selection.alias is not None
            depth = max(depth, inner)
            aliases += more
        return depth, aliases

    def _fragment(self, name: str) -> tuple[int, int]:
        if name not in self._measured:
            self._measured[name] = 0, 0  # validation reports unknown fragments and cycles
            if name in self._fragments:
                self._measured[name] = self.measure(self._fragments[name].selection_set)
        return self._measured[name]


def check_limits(document: DocumentNode, limits: Limits) -> None:
    """Check the depth, width and aliases of operations and fragments.

    :raises GraphQLError: a limit is exceeded. The message contains the actual number and the limit.
    """
    fragments = {
        node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)
    }
    measurer = _Measurer(fragments)
    for definition in document.definitions:
        if not isinstance(definition, OperationDefinitionNode | FragmentDefinitionNode):
            continue
        depth, aliases = measurer.measure(definition.selection_set)
        kind = "operation" if isinstance(definition, OperationDefinitionNode) else "fragment"
        if depth > limits.depth:
            message = f"The {kind} is {depth} fields deep, more than the {limits.depth} allowed."
            raise GraphQLError(message, definition)
        if aliases > limits.aliases:
            message = f"The {kind} has {aliases} aliases, more than the {limits.aliases} allowed."
            raise GraphQLError(message, definition)
