"""Documents as clients of pg_graphql write them, made into ones that the validation rules accept.

pg_graphql never looks at how variables are declared: it judges their values by the places
where they are used.  So every variable is declared anew here, with the type of its place.  A
variable that is used at places of several types becomes one variable for each of them.
Strings that stand for enum values become enum values, and fragments that are not needed are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from graphql import (
    ArgumentNode,
    DefinitionNode,
    DirectiveNode,
    DocumentNode,
    EnumValueNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLArgument,
    GraphQLCompositeType,
    GraphQLEnumType,
    GraphQLError,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLSchema,
    InlineFragmentNode,
    ListValueNode,
    NamedTypeNode,
    NameNode,
    ObjectFieldNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    StringValueNode,
    ValueNode,
    VariableDefinitionNode,
    VariableNode,
    get_named_type,
    is_composite_type,
    parse_type,
)

from dataapi.concurrency.pauses import pause
from dataapi.graphql.schema.shared_types import nullable

_SEPARATOR = ":"
"""Ends the client's name in the name of a variable's second type; no document can name such a variable."""

_VARIABLE = re.compile(rf"(\$\w+){_SEPARATOR}[0-9]+")

_Node = TypeVar("_Node")
_Definition = TypeVar("_Definition", OperationDefinitionNode, FragmentDefinitionNode)


def client_name(name: str) -> str:
    """Return what the client calls a variable."""
    return name.partition(_SEPARATOR)[0]


def client_message(message: str) -> str:
    """Return a message of graphql-core's with variables as the client calls them."""
    return _VARIABLE.sub(r"\1", message)


def compatible(document: DocumentNode, schema: GraphQLSchema) -> tuple[DocumentNode, Places]:
    """Return the document as the validation rules accept it, and the places of its variables; see the module.

    Its operations declare no variables, so the rules on how they are declared do not apply.

    Where a place is unknown, because the schema lacks its field or argument, nothing is changed: validation
    reports that.

    :raises GraphQLError: an operation declares a variable twice.
    """
    return _Adapter(schema).adapted(document.definitions)


def enum_value(node: ValueNode, type_: GraphQLInputType) -> ValueNode:
    """Return the literal at a place of that type, a string that stands for an enum value as one."""
    if isinstance(node, StringValueNode) and isinstance(get_named_type(type_), GraphQLEnumType):
        return EnumValueNode(value=node.value, loc=node.loc)
    return node


@dataclass(frozen=True, slots=True)
class _Use:
    """A variable at places of one type.

    :ivar node: the first of them.
    """

    type: GraphQLInputType
    node: VariableNode


@dataclass(frozen=True, slots=True)
class _Uses:
    """What an operation or a fragment uses itself.

    :ivar variables: by the names that they have in the adapted document.
    """

    variables: dict[str, _Use] = field(default_factory=dict)
    fragments: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the variables of a document's operations are used."""

    _operations: Mapping[str | None, _Uses]
    _fragments: Mapping[str, _Uses]

    def declarations(
        self, operation: str | None, written: Iterable[VariableDefinitionNode]
    ) -> tuple[VariableDefinitionNode, ...]:
        """Return a declaration for each variable of an operation, with the default that the client wrote.

        Made when they are asked for: hundreds of operations may share fragments with hundreds of variables.
        """
        uses = self._operations[operation]
        variables = dict(uses.variables)
        for name in _reached(uses.fragments, self._fragments):
            variables.update(self._fragments[name].variables)
        known = {node.variable.name.value: node for node in written}
        return tuple(_declaration(name, use, known.get(client_name(name))) for name, use in variables.items())


class _Adapter:
    """Adapts the definitions of one document."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._schema = schema
        self._types: dict[str, dict[str, int]] = {}
        self._uses = _Uses()

    def adapted(self, definitions: Iterable[DefinitionNode]) -> tuple[DocumentNode, Places]:
        operations: dict[str | None, _Uses] = {}
        fragments: dict[str, tuple[FragmentDefinitionNode, _Uses]] = {}
        nodes: list[DefinitionNode] = []
        spread: dict[str, None] = {}
        for node in definitions:
            if isinstance(node, FragmentDefinitionNode):
                if node.name.value not in fragments:  # of several with one name the first one counts
                    fragments[node.name.value] = self._definition(node, node.type_condition)
            elif isinstance(node, OperationDefinitionNode):
                _check_names(node.variable_definitions or ())
                operation, uses = self._definition(_changed(node, variable_definitions=()), None)
                operations[node.name.value if node.name else None] = uses
                spread.update(uses.fragments)
                nodes.append(operation)
            else:
                nodes.append(node)
        uses_of = {name: uses for name, (_, uses) in fragments.items()}
        needed = _reached(spread, uses_of)
        nodes += [node for name, (node, _) in fragments.items() if name in needed]
        return DocumentNode(definitions=tuple(nodes)), Places(operations, uses_of)

    def _definition(self, node: _Definition, condition: NamedTypeNode | None) -> tuple[_Definition, _Uses]:
        """Return an operation or fragment adapted, and what it uses."""
        self._uses = _Uses()
        if isinstance(node, OperationDefinitionNode):
            parent: object = self._schema.get_root_type(node.operation)
        else:
            parent = condition and self._schema.get_type(condition.name.value)
        adapted = _changed(
            node,
            directives=self._directives(node.directives),
            selection_set=self._selection_set(node.selection_set, parent),
        )
        return adapted, self._uses

    # ------------------------------------------------------------ selections

    def _selection_set(self, node: SelectionSetNode, parent: object) -> SelectionSetNode:
        composite = parent if is_composite_type(parent) else None
        return _changed(
            node, selections=_each(node.selections, lambda inner: self._selection(inner, composite))
        )

    def _selection(self, node: SelectionNode, parent: GraphQLCompositeType | None) -> SelectionNode:
        pause()
        directives = self._directives(node.directives)
        if isinstance(node, FieldNode):
            definition = None if parent is None else self._schema.get_field(parent, node.name.value)
            arguments, inner = node.arguments, node.selection_set
            if arguments and definition is not None:
                arguments = self._arguments(arguments, definition.args)
            if inner is not None:
                inner = self._selection_set(inner, definition and get_named_type(definition.type))
            return _changed(node, directives=directives, arguments=arguments, selection_set=inner)
        if isinstance(node, InlineFragmentNode):
            condition = node.type_condition
            target = parent if condition is None else self._schema.get_type(condition.name.value)
            return _changed(
                node, directives=directives, selection_set=self._selection_set(node.selection_set, target)
            )
        if isinstance(node, FragmentSpreadNode):
            self._uses.fragments[node.name.value] = None
        return _changed(node, directives=directives)

    def _directives(self, nodes: tuple[DirectiveNode, ...] | None) -> tuple[DirectiveNode, ...] | None:
        return _each(nodes, self._directive) if nodes else nodes

    def _directive(self, node: DirectiveNode) -> DirectiveNode:
        pause()
        definition = self._schema.get_directive(node.name.value)
        if definition is None or not node.arguments:
            return node
        return _changed(node, arguments=self._arguments(node.arguments, definition.args))

    def _arguments(
        self, nodes: tuple[ArgumentNode, ...], arguments: Mapping[str, GraphQLArgument]
    ) -> tuple[ArgumentNode, ...]:
        def adapted(node: ArgumentNode) -> ArgumentNode:
            argument = arguments.get(node.name.value)
            return (
                node
                if argument is None
                else _changed(node, value=_value(node.value, argument.type, self._variable))
            )

        return _each(nodes, adapted)

    # ------------------------------------------------------------ values

    def _variable(self, node: VariableNode, type_: GraphQLInputType) -> VariableNode:
        name = node.name.value
        types = self._types.setdefault(name, {})
        number = types.setdefault(str(type_), len(types))
        if number:
            node = _named(f"{name}{_SEPARATOR}{number}", node)
        self._uses.variables.setdefault(node.name.value, _Use(type_, node))
        return node


def _value(
    node: ValueNode,
    type_: GraphQLInputType,
    variable: Callable[[VariableNode, GraphQLInputType], VariableNode],
) -> ValueNode:
    """Return a literal as it is at a place of that type.

    :param variable: makes the variable at a place of a nullable type.
    """
    pause()
    type_ = nullable(type_)
    if isinstance(node, VariableNode):
        return variable(node, type_)
    if isinstance(type_, GraphQLList):
        item = type_.of_type
        if not isinstance(node, ListValueNode):
            return _value(node, item, variable)
        return _changed(node, values=_each(node.values, lambda inner: _value(inner, item, variable)))
    if not isinstance(type_, GraphQLInputObjectType) or not isinstance(node, ObjectValueNode):
        return enum_value(node, type_)
    fields = type_.fields

    def member(inner: ObjectFieldNode) -> ObjectFieldNode:
        known = fields.get(inner.name.value)
        return inner if known is None else _changed(inner, value=_value(inner.value, known.type, variable))

    return _changed(node, fields=_each(node.fields, member))


def _check_names(nodes: Iterable[VariableDefinitionNode]) -> None:
    known: dict[str, VariableDefinitionNode] = {}
    for node in nodes:
        other = known.setdefault(node.variable.name.value, node)
        if other is not node:
            name = node.variable.name.value
            raise GraphQLError(f"There can be only one variable named '${name}'.", [other, node])


def _reached(names: Iterable[str], fragments: Mapping[str, _Uses]) -> dict[str, None]:
    """Return the names of the fragments that these spreads lead to, directly or by way of others."""
    reached: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in fragments and name not in reached:
            reached[name] = None
            pending += fragments[name].fragments
    return reached


def _declaration(name: str, use: _Use, written: VariableDefinitionNode | None) -> VariableDefinitionNode:
    """Return a variable's declaration by its use, at the place and with the default of the client's own."""
    pause()
    default: Any = None
    if written is not None and written.default_value is not None:
        default = _value(written.default_value, use.type, lambda node, _type: node)
    place = use.node if written is None else written
    return VariableDefinitionNode(
        variable=_named(name, place),
        type=parse_type(str(use.type), no_location=True),
        default_value=default,
        directives=(),
        loc=place.loc,
    )


def _named(name: str, place: VariableDefinitionNode | VariableNode) -> VariableNode:
    return VariableNode(name=NameNode(value=name, loc=place.loc), loc=place.loc)


def _each(nodes: tuple[_Node, ...], adapt: Callable[[_Node], _Node]) -> tuple[_Node, ...]:
    """Return the nodes adapted, the very same sequence when none changes."""
    adapted = tuple(map(adapt, nodes))
    return nodes if all(map(_same, nodes, adapted)) else adapted


def _changed(node: _Node, **members: object) -> _Node:
    """Return a node with other members, the very same node when they are its own."""
    if all(getattr(node, name) is value for name, value in members.items()):
        return node
    return replace(node, **members)  # type: ignore[type-var]


def _same(one: object, other: object) -> bool:
    return one is other
