"""Adapts documents to pg_graphql's rules on variables, enums and fragments.

pg_graphql ignores the declared types of variables and checks their values where they are used. So each
variable gets the type of its position, and becomes several variables if its positions have several types.
Strings may stand for enum values, and unused fragments are ignored.

The literals and aliases extracted by ``literal_parameters`` become parameters, so that other documents can
share the adapted document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, cast

import graphql as gql

from dataapi.graphql.graphql_core import offset
from dataapi.graphql.input_values import InputMembers, Literal, LiteralReading, VariableUse, with_enum_values
from dataapi.graphql.schema.shared_types import nullable

_SEPARATOR = ":"
"""Separates a variable's name from the number that is added if the variable has several types.

Names in documents cannot contain this character.
"""


def client_name(name: str) -> str:
    return name.partition(_SEPARATOR)[0]


@dataclass(frozen=True, slots=True)
class _Uses:
    variables: dict[str, VariableUse] = field(default_factory=dict)
    fragments: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdaptedDocument:
    """A document ready to be validated and compiled.

    :ivar literals: the arguments of each field and directive, by its offset in the text.
    :ivar parameters: the names of the parameters that replace literals and aliases, by offset in the text.
    :ivar literal_types: the types of extracted literals, by parameter name.
    :ivar merges: whether some fields with arguments have the same response key. If they are merged, their
        literals must be equal.
    :ivar arguments_valid: whether all arguments are certainly valid, whatever the variables' values.
    """

    document: gql.DocumentNode
    _enum_strings: Set[int]
    literals: Mapping[int, Mapping[str, Literal]]
    parameters: Mapping[int, str]
    literal_types: Mapping[str, gql.GraphQLInputType]
    merges: bool
    arguments_valid: bool
    _operations: Mapping[str | None, _Uses]
    _fragments: Mapping[str, _Uses]

    def for_rules(self) -> gql.DocumentNode:
        """Return the document for graphql-core's rules. Strings that stand for enum values are replaced."""
        return with_enum_values(self.document, self._enum_strings)

    def variables(self, operation: str | None) -> Iterable[VariableUse]:
        """Return one use of each variable of an operation.

        Computed on demand, because hundreds of operations may share fragments with hundreds of variables.
        """
        uses = self._operations[operation]
        variables = dict(uses.variables)
        for name in _reachable(uses.fragments, self._fragments):
            variables.update(self._fragments[name].variables)
        return variables.values()


def adapt(
    document: gql.DocumentNode,
    schema: gql.GraphQLSchema,
    parameters: Mapping[int, str] | None = None,
    *,
    strict: bool = False,
) -> AdaptedDocument:
    """Return an adapted document.

    Unless ``strict`` is true, its operations declare no variables, so no rules on declarations apply. Unknown
    arguments, and arguments of unknown fields, are ignored, because validation reports them.

    :param parameters: the names of the parameters that replace literals and aliases, by offset in the text.
    :param strict: whether to keep the declarations and types of variables, and unused fragments.
    :raises GraphQLError: an operation declares a variable twice.
    """
    return _Adapter(schema, parameters or {}, strict=strict).adapt(document)


class _Adapter(LiteralReading):
    def __init__(self, schema: gql.GraphQLSchema, parameters: Mapping[int, str], *, strict: bool) -> None:
        super().__init__()
        self._schema = schema
        self._parameters = parameters
        self._strict = strict
        self._types: dict[str, dict[str, int]] = {}
        self._uses = _Uses()
        self._literals: dict[int, dict[str, Literal]] = {}
        self._literal_types: dict[str, gql.GraphQLInputType] = {}
        self._keys: set[str] = set()
        self._merges = False

    def adapt(self, document: gql.DocumentNode) -> AdaptedDocument:
        operations: dict[str | None, _Uses] = {}
        fragments: dict[str, tuple[gql.FragmentDefinitionNode, _Uses]] = {}
        nodes: list[gql.DefinitionNode] = []
        for node in document.definitions:
            if isinstance(node, gql.OperationDefinitionNode):
                operations[node.name.value if node.name else None] = self._operation(node)
                nodes.append(node if self._strict else replace(node, variable_definitions=()))
            elif not isinstance(node, gql.FragmentDefinitionNode):
                nodes.append(node)
            elif self._strict:
                self._definition(node, None)
                nodes.append(node)
            elif node.name.value not in fragments:  # the first of several with this name is used
                fragments[node.name.value] = node, self._definition(node, None)
        uses_of = {name: uses for name, (_, uses) in fragments.items()}
        spread = [name for uses in operations.values() for name in uses.fragments]
        needed = _reachable(spread, uses_of).keys() | _cyclic(uses_of)
        nodes += [node for name, (node, _) in fragments.items() if name in needed]
        return AdaptedDocument(
            gql.DocumentNode(definitions=tuple(nodes)),
            self.enum_strings,
            self._literals,
            self._parameters,
            self._literal_types,
            self._merges,
            self.valid and self.certain,
            operations,
            uses_of,
        )

    def _operation(self, node: gql.OperationDefinitionNode) -> _Uses:
        declarations = node.variable_definitions or ()
        if not self._strict:
            _check_names(declarations)
        uses = self._definition(node, self._schema.get_root_type(node.operation))
        for declared in declarations if self._strict else ():
            name, type_ = declared.variable.name.value, gql.type_from_ast(self._schema, declared.type)
            uses.variables[name] = VariableUse(name, nullable(cast("Any", type_)), declared)
        return uses

    def _definition(self, node: gql.ExecutableDefinitionNode, parent: object) -> _Uses:
        self._uses = _Uses()
        if isinstance(node, gql.FragmentDefinitionNode):
            parent = self._schema.get_type(node.type_condition.name.value)
        self._directives(node.directives)
        self._selection_set(node.selection_set, parent)
        return self._uses

    def _selection_set(self, node: gql.SelectionSetNode, parent: object) -> None:
        composite = parent if gql.is_composite_type(parent) else None
        for selection in node.selections:
            self._directives(selection.directives)
            if isinstance(selection, gql.FieldNode):
                self._field(selection, composite)
            elif isinstance(selection, gql.InlineFragmentNode):
                condition = selection.type_condition
                target = composite if condition is None else self._schema.get_type(condition.name.value)
                self._selection_set(selection.selection_set, target)
            elif isinstance(selection, gql.FragmentSpreadNode):
                self._uses.fragments[selection.name.value] = None

    def _field(self, node: gql.FieldNode, parent: gql.GraphQLCompositeType | None) -> None:
        definition = None if parent is None else self._schema.get_field(parent, node.name.value)
        if node.arguments:
            key = (node.alias or node.name).value
            self._merges |= key in self._keys
            self._keys.add(key)
        if definition is not None and definition.args:
            self._arguments(node, definition)
        elif node.arguments:
            self.valid = False
        if node.selection_set is not None:
            self._selection_set(node.selection_set, definition and gql.get_named_type(definition.type))

    def _directives(self, nodes: tuple[gql.DirectiveNode, ...] | None) -> None:
        for node in nodes or ():
            definition = self._schema.get_directive(node.name.value)
            if definition is not None:
                self._arguments(node, definition)

    def _arguments(
        self, node: gql.FieldNode | gql.DirectiveNode, definition: gql.GraphQLField | gql.GraphQLDirective
    ) -> None:
        literals = InputMembers(definition.args).literals(node.arguments or (), self)
        if literals:
            self._literals[offset(node)] = literals

    def use(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> VariableUse | None:
        if not isinstance(node, gql.VariableNode):
            parameter = self._parameters.get(offset(node))
            if parameter is None:
                return None
            self._literal_types[parameter] = type_
            return VariableUse(parameter, type_, node)
        name = node.name.value
        if not self._strict:
            types = self._types.setdefault(name, {})
            number = types.setdefault(str(type_), len(types))
            name = f"{name}{_SEPARATOR}{number}" if number else name
        use = VariableUse(name, type_, node)
        if not self._strict:
            self._uses.variables.setdefault(name, use)
        return use


def _check_names(nodes: Iterable[gql.VariableDefinitionNode]) -> None:
    first: dict[str, gql.VariableDefinitionNode] = {}
    for node in nodes:
        other = first.setdefault(node.variable.name.value, node)
        if other is not node:
            name = node.variable.name.value
            raise gql.GraphQLError(f"There can be only one variable named '${name}'.", [other, node])


def _reachable(names: Iterable[str], fragments: Mapping[str, _Uses]) -> dict[str, None]:
    reached: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in fragments and name not in reached:
            reached[name] = None
            pending += fragments[name].fragments
    return reached


def _cyclic(fragments: Mapping[str, _Uses]) -> set[str]:
    """Return the fragments that lead to a cycle of spreads. Even an unused cycle is an error."""
    spread_by: dict[str, list[str]] = {}
    remaining = {
        name: sum(1 for inner in uses.fragments if inner in fragments) for name, uses in fragments.items()
    }
    for name, uses in fragments.items():
        for inner in uses.fragments:
            spread_by.setdefault(inner, []).append(name)
    acyclic = [name for name, spreads in remaining.items() if not spreads]
    while acyclic:
        name = acyclic.pop()
        del remaining[name]
        for outer in spread_by.get(name, ()):
            remaining[outer] -= 1
            if not remaining[outer]:
                acyclic.append(outer)
    return set(remaining)
