"""Documents adapted to the schema: variables by the places where they are used, and parameters for values.

pg_graphql never looks at how variables are declared: it judges their values by the places
where they are used.  So every variable gets the type of its place here.  A
variable that is used at places of several types becomes one variable for each of them.
Strings that stand for enum values become enum values, and fragments that are not needed are
left out.

The literals and aliases that ``literal_parameters`` took out of the text become variables and
names of the compiled form, which other documents share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, TypeVar, cast

import graphql as gql

from dataapi.graphql.schema.shared_types import nullable

_SEPARATOR = ":"
"""Ends the client's name in the name of a variable's second type; no document can name such a variable."""

_VARIABLE = re.compile(rf"(\$\w+){_SEPARATOR}[0-9]+")

_Node = TypeVar("_Node")
_Definition = TypeVar("_Definition", bound=gql.ExecutableDefinitionNode)
_Member = TypeVar("_Member", gql.ArgumentNode, gql.ObjectFieldNode)


def client_name(name: str) -> str:
    """Return the client's name of a variable."""
    return name.partition(_SEPARATOR)[0]


def client_message(message: str) -> str:
    """Return a message of graphql-core's with variables as the client calls them."""
    return _VARIABLE.sub(r"\1", message)


def enum_value(node: gql.ValueNode, type_: gql.GraphQLInputType) -> gql.ValueNode:
    """Return the literal at a place of that type, a string that stands for an enum value as one."""
    if isinstance(node, gql.StringValueNode) and isinstance(gql.get_named_type(type_), gql.GraphQLEnumType):
        return gql.EnumValueNode(value=node.value, loc=node.loc)
    return node


@dataclass(frozen=True, slots=True)
class DeclaredVariable:
    """A variable of an operation.

    :ivar name: its name in the adapted document.
    :ivar default: the literal of its default, None without one.
    :ivar node: its declaration, or else its first use.
    """

    name: str
    type: gql.GraphQLInputType
    default: gql.ConstValueNode | None
    node: gql.Node


@dataclass(frozen=True, slots=True)
class _Uses:
    """The variables and fragments that an operation or a fragment uses itself.

    :ivar variables: by the names that they have in the adapted document.
    """

    variables: dict[str, DeclaredVariable] = field(default_factory=dict)
    fragments: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdaptedDocument:
    """A document as it is validated and compiled.

    :ivar literal_types: the types of the places of literals, by the names of their parameters.
    :ivar merges: whether fields with arguments may be merged: they must have equal literals.
    :ivar arguments_valid: whether all arguments are valid for sure, whatever the values of variables.
    """

    document: gql.DocumentNode
    literal_types: Mapping[str, gql.GraphQLInputType]
    merges: bool
    arguments_valid: bool
    _operations: Mapping[str | None, _Uses]
    _fragments: Mapping[str, _Uses]

    def variables(
        self, operation: str | None, declarations: Iterable[gql.VariableDefinitionNode]
    ) -> Iterable[DeclaredVariable]:
        """Yield the variables of an operation as they are judged, with the defaults that the client declared.

        On demand: hundreds of operations may share fragments with hundreds of variables.
        """
        uses = self._operations[operation]
        variables = dict(uses.variables)
        for name in _reached(uses.fragments, self._fragments):
            variables.update(self._fragments[name].variables)
        declared = {node.variable.name.value: node for node in declarations}
        for variable in variables.values():
            node = declared.get(client_name(variable.name))
            if node is not None:
                default: Any = node.default_value and _Literals().value(node.default_value, variable.type)
                variable = replace(variable, default=default, node=node)  # noqa: PLW2901
            yield variable


def adapt(
    document: gql.DocumentNode,
    schema: gql.GraphQLSchema,
    parameters: Mapping[int, str] | None = None,
    *,
    strict: bool = False,
) -> AdaptedDocument:
    """Return a document adapted to the schema; see the module.

    Its operations declare no variables, so the rules on how they are declared do not apply.

    Where a place is unknown, because the schema lacks its field or argument, nothing is changed: validation
    reports that.

    :param parameters: names for literals and aliases by their offset in the text.
    :param strict: leaves everything but these as it is.
    :raises GraphQLError: an operation declares a variable twice.
    """
    return _Adapter(schema, parameters or {}, strict=strict).adapted(document)


class _Literals:
    """Adapts literals to the types of their places.

    :ivar valid: whether those until now are valid for sure, whatever the values of variables in them.
    """

    def __init__(self) -> None:
        self.valid = True

    def value(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> gql.ValueNode:
        """Return a literal as it is at a place of that type."""
        if isinstance(type_, gql.GraphQLNonNull):
            self.valid &= not isinstance(node, gql.NullValueNode)
            type_ = type_.of_type
        if isinstance(node, gql.ListValueNode) and isinstance(type_, gql.GraphQLList):
            item = type_.of_type
            return _changed(node, values=_each(node.values, lambda inner: self.value(inner, item)))
        if not isinstance(node, gql.ObjectValueNode):
            adapted = self.leaf(node, type_)
            if not isinstance(adapted, gql.VariableNode | gql.NullValueNode):
                self.valid &= gql.coerce_input_literal(adapted, type_) is not gql.Undefined
            return adapted
        if isinstance(type_, gql.GraphQLList):
            return self.value(node, type_.of_type)  # a lone object is a list of one
        if not isinstance(type_, gql.GraphQLInputObjectType):
            self.valid = False  # a scalar may accept it
            return node
        return _changed(node, fields=self.members(node.fields, type_.fields))

    def leaf(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> gql.ValueNode:
        """Return a leaf, adapted to a nullable type."""
        return enum_value(node, type_)

    def members(
        self,
        nodes: tuple[_Member, ...] | None,
        definitions: Mapping[str, gql.GraphQLArgument | gql.GraphQLInputField],
    ) -> tuple[_Member, ...] | None:
        """Return arguments, or members of an object, with adapted values."""
        names = [node.name.value for node in nodes or ()]
        self.valid &= len(set(names)) == len(names) and all(
            name in names or not isinstance(each.type, gql.GraphQLNonNull) or each.default is not None
            for name, each in definitions.items()
        )

        def adapted(node: _Member) -> _Member:
            definition = definitions.get(node.name.value)
            if definition is None:
                self.valid = False
                return node
            return _changed(node, value=self.value(node.value, definition.type))

        return _each(nodes, adapted) if nodes else nodes


class _Adapter(_Literals):
    """Adapts the definitions of one document."""

    def __init__(self, schema: gql.GraphQLSchema, parameters: Mapping[int, str], *, strict: bool) -> None:
        super().__init__()
        self._schema = schema
        self._parameters = parameters
        self._strict = strict
        self._types: dict[str, dict[str, int]] = {}
        self._uses = _Uses()
        self._literal_types: dict[str, gql.GraphQLInputType] = {}
        self._keys: set[str] = set()
        self._merges = False

    def adapted(self, document: gql.DocumentNode) -> AdaptedDocument:
        operations: dict[str | None, _Uses] = {}
        fragments: dict[str, tuple[gql.FragmentDefinitionNode, _Uses]] = {}
        nodes: list[gql.DefinitionNode] = []
        spread: list[str] = []
        for node in document.definitions:
            if isinstance(node, gql.OperationDefinitionNode):
                adapted, uses = self._operation(node)
                operations[node.name.value if node.name else None] = uses
                spread += uses.fragments
                nodes.append(adapted)
            elif not isinstance(node, gql.FragmentDefinitionNode):
                nodes.append(node)
            elif self._strict:
                nodes.append(self._definition(node)[0])
            elif node.name.value not in fragments:  # of several with one name the first one counts
                fragments[node.name.value] = self._definition(node)
        uses_of = {name: uses for name, (_, uses) in fragments.items()}
        needed = _reached(spread, uses_of).keys() | _circular(uses_of)
        nodes += [node for name, (node, _) in fragments.items() if name in needed]
        whole = gql.DocumentNode(definitions=tuple(nodes))
        return AdaptedDocument(whole, self._literal_types, self._merges, self.valid, operations, uses_of)

    def _operation(self, node: gql.OperationDefinitionNode) -> tuple[gql.OperationDefinitionNode, _Uses]:
        """Return an operation adapted, without declarations unless these count, and its uses."""
        if not self._strict:
            _check_names(node.variable_definitions or ())
            return self._definition(_changed(node, variable_definitions=()))
        adapted, uses = self._definition(node)
        for declared in node.variable_definitions or ():
            name, type_ = declared.variable.name.value, gql.type_from_ast(self._schema, declared.type)
            uses.variables[name] = DeclaredVariable(name, nullable(cast("Any", type_)), None, declared)
        return adapted, uses

    def _definition(self, node: _Definition) -> tuple[_Definition, _Uses]:
        """Return an operation or fragment adapted, and its uses."""
        self._uses = _Uses()
        parent: object = None
        if isinstance(node, gql.OperationDefinitionNode):
            parent = self._schema.get_root_type(node.operation)
        elif isinstance(node, gql.FragmentDefinitionNode):
            parent = self._schema.get_type(node.type_condition.name.value)
        adapted = _changed(
            node,
            directives=self._directives(node.directives),
            selection_set=self._selection_set(node.selection_set, parent),
        )
        return adapted, self._uses

    def _selection_set(self, node: gql.SelectionSetNode, parent: object) -> gql.SelectionSetNode:
        composite = parent if gql.is_composite_type(parent) else None
        selections = _each(node.selections, lambda inner: self._selection(inner, composite))
        return _changed(node, selections=selections)

    def _selection(
        self, node: gql.SelectionNode, parent: gql.GraphQLCompositeType | None
    ) -> gql.SelectionNode:
        directives = self._directives(node.directives)
        if isinstance(node, gql.FieldNode):
            definition = None if parent is None else self._schema.get_field(parent, node.name.value)
            alias, arguments, inner = self._alias(node), node.arguments, node.selection_set
            if arguments:
                key = (node.alias or node.name).value
                self._merges |= key in self._keys
                self._keys.add(key)
            if definition is not None:
                arguments = self.members(arguments, definition.args)
            if inner is not None:
                inner = self._selection_set(inner, definition and gql.get_named_type(definition.type))
            return _changed(
                node, alias=alias, directives=directives, arguments=arguments, selection_set=inner
            )
        if isinstance(node, gql.InlineFragmentNode):
            condition = node.type_condition
            target = parent if condition is None else self._schema.get_type(condition.name.value)
            inner = self._selection_set(node.selection_set, target)
            return _changed(node, directives=directives, selection_set=inner)
        if isinstance(node, gql.FragmentSpreadNode):
            self._uses.fragments[node.name.value] = None
        return _changed(node, directives=directives)

    def _alias(self, node: gql.FieldNode) -> gql.NameNode | None:
        alias = node.alias
        if alias is None or alias.loc is None or alias.loc.start not in self._parameters:
            return alias
        return gql.NameNode(value=self._parameters[alias.loc.start], loc=alias.loc)

    def _directives(
        self, nodes: tuple[gql.DirectiveNode, ...] | None
    ) -> tuple[gql.DirectiveNode, ...] | None:
        return _each(nodes, self._directive) if nodes else nodes

    def _directive(self, node: gql.DirectiveNode) -> gql.DirectiveNode:
        definition = self._schema.get_directive(node.name.value)
        if definition is None:
            return node
        return _changed(node, arguments=self.members(node.arguments, definition.args))

    def leaf(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> gql.ValueNode:
        if isinstance(node, gql.VariableNode):
            return node if self._strict else self._variable(node, type_)
        parameter = self._parameters.get(node.loc.start) if node.loc else None
        if parameter is None or isinstance(node, gql.ListValueNode):
            return enum_value(node, type_)
        self._literal_types[parameter] = type_
        return gql.VariableNode(name=gql.NameNode(value=parameter), loc=node.loc)

    def _variable(self, node: gql.VariableNode, type_: gql.GraphQLInputType) -> gql.VariableNode:
        name = node.name.value
        types = self._types.setdefault(name, {})
        number = types.setdefault(str(type_), len(types))
        if number:
            name = f"{name}{_SEPARATOR}{number}"
            node = gql.VariableNode(name=gql.NameNode(value=name, loc=node.loc), loc=node.loc)
        self._uses.variables.setdefault(name, DeclaredVariable(name, type_, None, node))
        return node


def _check_names(nodes: Iterable[gql.VariableDefinitionNode]) -> None:
    first: dict[str, gql.VariableDefinitionNode] = {}
    for node in nodes:
        other = first.setdefault(node.variable.name.value, node)
        if other is not node:
            name = node.variable.name.value
            raise gql.GraphQLError(f"There can be only one variable named '${name}'.", [other, node])


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


def _circular(fragments: Mapping[str, _Uses]) -> set[str]:
    """Return the fragments that spread one another in a circle, which are refused though none uses them.

    Those that lead to a circle are among them.
    """
    spread_by: dict[str, list[str]] = {}
    left = {
        name: sum(1 for inner in uses.fragments if inner in fragments) for name, uses in fragments.items()
    }
    for name, uses in fragments.items():
        for inner in uses.fragments:
            spread_by.setdefault(inner, []).append(name)
    ending = [name for name, spreads in left.items() if not spreads]
    while ending:
        name = ending.pop()
        del left[name]
        for outer in spread_by.get(name, ()):
            left[outer] -= 1
            if not left[outer]:
                ending.append(outer)
    return set(left)


def _each(nodes: tuple[_Node, ...], adapt: Callable[[_Node], _Node]) -> tuple[_Node, ...]:
    """Return the nodes adapted, the very same sequence when none changes."""
    adapted = tuple(map(adapt, nodes))
    return nodes if all(map(is_, nodes, adapted)) else adapted


def _changed(node: _Node, **members: object) -> _Node:
    """Return a node with other members, the very same node when they are its own."""
    if all(getattr(node, name) is value for name, value in members.items()):
        return node
    return replace(node, **members)  # type: ignore[type-var]
