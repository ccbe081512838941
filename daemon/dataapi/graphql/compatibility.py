"""Documents as clients of the reference write them, made into ones that the validation rules accept.

The reference never looks at how variables are declared: it judges their values by the places
where they are used.  So every variable is declared anew here, with the type of its place.  A
variable that is used at places of several types becomes one variable for each of them.
Strings that stand for enum values become enum values, and fragments that nobody needs are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLSchema,
    InlineFragmentNode,
    ListValueNode,
    NamedTypeNode,
    NameNode,
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

from dataapi.graphql.wrappers import nullable

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


def compatible(document: DocumentNode, schema: GraphQLSchema) -> DocumentNode:
    """Return the document with its variables declared by their places; see the module.

    Where a place is unknown, because the schema lacks its field or argument, nothing is changed: validation
    reports that.
    """
    return _Document(schema).adapted(document.definitions)


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
    fragments: set[str] = field(default_factory=set)


class _Document:
    """Adapts the definitions of one document."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._schema = schema
        self._types: dict[str, list[str]] = {}
        self._uses = _Uses()

    def adapted(self, definitions: tuple[DefinitionNode, ...]) -> DocumentNode:
        fragments: dict[str, tuple[FragmentDefinitionNode, _Uses]] = {}
        operations: list[tuple[OperationDefinitionNode, _Uses]] = []
        others: list[DefinitionNode] = []
        for node in definitions:
            if isinstance(node, FragmentDefinitionNode):
                if node.name.value not in fragments:  # of several with one name the first one counts
                    fragments[node.name.value] = self._definition(node, node.type_condition)
            elif isinstance(node, OperationDefinitionNode):
                operations.append(self._definition(node, None))
            else:
                others.append(node)
        needed: dict[str, FragmentDefinitionNode] = {}
        declared: list[DefinitionNode] = []
        for operation, uses in operations:
            reached = _reached(uses.fragments, fragments)
            needed.update((name, node) for name, (node, _) in reached.items())
            variables = dict(uses.variables)
            for _, inner in reached.values():
                variables.update(inner.variables)
            declarations = tuple(self._declarations(operation.variable_definitions or (), variables))
            declared.append(replace(operation, variable_definitions=declarations))
        return DocumentNode(definitions=(*declared, *needed.values(), *others))

    def _declarations(
        self, written: tuple[VariableDefinitionNode, ...], variables: Mapping[str, _Use]
    ) -> Iterator[VariableDefinitionNode]:
        """Yield a declaration for each variable, with the default that the client's own one has."""
        uses: dict[str, list[tuple[str, _Use]]] = {}
        for name, use in variables.items():
            uses.setdefault(client_name(name), []).append((name, use))
        for node in written:  # a name that is declared twice stays so, for validation to report
            for name, use in uses.get(node.variable.name.value, ()):
                default = node.default_value
                value = None if default is None else self._value(default, use.type)
                yield _declaration(name, use.type, node, value)
        known = {node.variable.name.value for node in written}
        for name, use in variables.items():
            if client_name(name) not in known:
                yield _declaration(name, use.type, use.node, None)

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
            self._uses.fragments.add(node.name.value)
        return _changed(node, directives=directives)

    def _directives(self, nodes: tuple[DirectiveNode, ...] | None) -> tuple[DirectiveNode, ...] | None:
        return _each(nodes, self._directive) if nodes else nodes

    def _directive(self, node: DirectiveNode) -> DirectiveNode:
        definition = self._schema.get_directive(node.name.value)
        if definition is None or not node.arguments:
            return node
        return _changed(node, arguments=self._arguments(node.arguments, definition.args))

    def _arguments(
        self, nodes: tuple[ArgumentNode, ...], arguments: Mapping[str, GraphQLArgument]
    ) -> tuple[ArgumentNode, ...]:
        def adapted(node: ArgumentNode) -> ArgumentNode:
            argument = arguments.get(node.name.value)
            return node if argument is None else _changed(node, value=self._value(node.value, argument.type))

        return _each(nodes, adapted)

    # ------------------------------------------------------------ values

    def _value(self, node: ValueNode, type_: GraphQLInputType) -> ValueNode:
        type_ = nullable(type_)
        if isinstance(node, VariableNode):
            return self._variable(node, type_)
        if isinstance(type_, GraphQLList):
            item = type_.of_type
            if not isinstance(node, ListValueNode):
                return self._value(node, item)
            return _changed(node, values=_each(node.values, lambda inner: self._value(inner, item)))
        if isinstance(type_, GraphQLInputObjectType) and isinstance(node, ObjectValueNode):
            fields = type_.fields
            return _changed(
                node,
                fields=_each(
                    node.fields,
                    lambda member: (
                        _changed(member, value=self._value(member.value, fields[member.name.value].type))
                        if member.name.value in fields
                        else member
                    ),
                ),
            )
        return enum_value(node, type_)

    def _variable(self, node: VariableNode, type_: GraphQLInputType) -> VariableNode:
        name, kind = node.name.value, str(type_)
        types = self._types.setdefault(name, [])
        if kind not in types:
            types.append(kind)
        number = types.index(kind)
        if number:
            node = _named(f"{name}{_SEPARATOR}{number}", node)
        self._uses.variables.setdefault(node.name.value, _Use(type_, node))
        return node


def _reached(
    names: Iterable[str], fragments: Mapping[str, tuple[FragmentDefinitionNode, _Uses]]
) -> dict[str, tuple[FragmentDefinitionNode, _Uses]]:
    """Return the fragments that these spreads lead to, directly or by way of others."""
    reached: dict[str, tuple[FragmentDefinitionNode, _Uses]] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in fragments and name not in reached:
            reached[name] = fragments[name]
            pending += fragments[name][1].fragments
    return {name: fragments[name] for name in fragments if name in reached}


def _declaration(
    name: str,
    type_: GraphQLInputType,
    place: VariableDefinitionNode | VariableNode,
    default: Any,
) -> VariableDefinitionNode:
    return VariableDefinitionNode(
        variable=_named(name, place),
        type=parse_type(str(type_), no_location=True),
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
