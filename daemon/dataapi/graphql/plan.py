"""Compiled operations. A plan is valid for one shape of the variables (see ``input_values``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from graphql import FieldNode, GraphQLError, GraphQLNonNull

from dataapi.catalog.registry import TableFieldKind
from dataapi.database.message import Bound
from dataapi.graphql.arguments import SelectedFields, Selector, as_leaf
from dataapi.graphql.compiler import Compiler, Cost, function_output, member_key
from dataapi.graphql.document import GraphQLOperation, OperationPlanInput
from dataapi.graphql.mutation_statements import OperationStep, compile_mutations
from dataapi.graphql.mutations import mutation_step
from dataapi.graphql.outputs import CurrentTime, JsonText
from dataapi.graphql.schema.functions import FunctionField
from dataapi.graphql.schema.role_schema import MUTATION, QUERY, RoleSchema, TableField
from dataapi.graphql.separate_statements import FieldStatements, compile_separately, needs_several_messages
from dataapi.graphql.sources import Fixed, Variables, client_key, source_weight
from dataapi.graphql.transport import GraphQLRequest, RequestRejected, Stage
from dataapi.sql.algebra import Parameter, Rows, SlotSource
from dataapi.sql.dialect import compile_query, dialect_of
from dataapi.sql.outputs import Key, Null, Object, Output, Text
from dataapi.sql.statement import Compiled

PLAN = 600
"""Approximate size of a plan without its statements and constants, in bytes."""
INTROSPECTION = frozenset({"__schema", "__type"})


@dataclass(frozen=True, slots=True)
class IntrospectionResult:
    """The result of an introspection field. The variables contain this result when the plan is bound."""

    key: str

    def bind(self, variables: Variables) -> str | None:
        result: str = variables[result_name(self.key)]
        return result


def result_name(key: str) -> str:
    """Return the variable for the result of an introspection field. Documents cannot use this name."""
    return f"__schema:{key}"


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """A compiled operation.

    :ivar statements: the statements in order. The last statement returns the data. Empty if the data is
        constant.
    :ivar constants: JSON text of the members of constant data, by response key.
    :ivar maximum: the highest cost for any variables.
    :ivar errors: the errors of fields that are omitted or null.
    :ivar keys: the response keys of the root fields in order, None for fields that need no database.
    :ivar fields: fields with statements that are sent separately. Empty if all statements are sent together.
    :ivar introspects: whether introspection fields must be executed before the plan is bound.
    """

    statements: tuple[Compiled, ...] = ()
    constants: tuple[tuple[str, SlotSource], ...] = ()
    costs: tuple[Cost, ...] = ()
    maximum: float = 0
    errors: tuple[GraphQLError, ...] = ()
    keys: tuple[str | None, ...] = ()
    fields: tuple[FieldStatements, ...] = ()
    introspects: bool = False
    read_only: bool = True
    has_data: bool = True

    def constant(self, variables: Variables) -> str:
        if not self.has_data:
            return "null"
        # GraphQL names need no escapes in JSON.
        members = [
            f'"{client_key(key, variables)}": {value.bind(variables)}' for key, value in self.constants
        ]
        return f"{{{', '.join(members)}}}"

    @property
    def weight(self) -> int:
        constants = sum(len(key) + source_weight(value) for key, value in self.constants)
        return PLAN + constants + sum(map(_weight, self.statements))

    @property
    def length(self) -> int:
        return sum(len(compiled.statement.text) for compiled in self.statements)

    def unprepared(self) -> OperationPlan:
        statements = tuple(compiled.unprepared() for compiled in self.statements)
        return replace(self, statements=statements, fields=tuple(each.unprepared() for each in self.fields))

    def cost(self, variables: Variables) -> int:
        return sum(cost.rows(variables) for cost in self.costs)

    def input_checks(self, variables: Variables) -> list[Bound]:
        """Return statements that only parse the values, and fail if PostgreSQL rejects one of them."""
        return [check.bind(variables) for each in self.statements for check in each.input_checks]

    def failures(self, variables: Variables) -> tuple[tuple[str, GraphQLError], ...]:
        """Return the errors of values that cannot be bound, with the response keys of their root fields.

        :raises GraphQLError: an error belongs to no root field.
        """
        failures: dict[str, GraphQLError] = {}
        for compiled in self.statements:
            for source in compiled.sources:
                try:
                    source.bind(variables)
                except GraphQLError as error:
                    if not error.path:
                        raise
                    failures.setdefault(str(error.path[0]), error)
        return tuple(failures.items())


def _weight(compiled: Compiled) -> int:
    own = len(compiled.statement.text) + sum(map(source_weight, compiled.sources))
    return own + sum(map(_weight, compiled.input_checks))


def compile_plan(
    operation: GraphQLOperation, schema: RoleSchema, plan_input: OperationPlanInput
) -> OperationPlan:
    """Compile an operation. Besides the schema, the plan depends only on ``plan_input``.

    :raises GraphQLError: an argument is invalid in a way that graphql-core's validation does not detect.
    """
    selector = Selector(operation, operation.shapes(plan_input))
    fields = selector.root_fields()
    compiler = Compiler(schema, selector)
    if operation.is_mutation:
        return _plan_mutation(compiler, fields)
    return _plan_query(compiler, operation.root, fields, dict(plan_input.failed))


def _plan_query(
    compiler: Compiler, root: str, fields: SelectedFields, failed: Mapping[str, GraphQLError]
) -> OperationPlan:
    """Compile a query. A nullable field that fails is null. If all fields fail, the data is null.

    :raises GraphQLError: an argument of a non-null field is invalid.
    """
    schema = compiler.schema
    members: dict[str, tuple[Key, Output]] = {}
    constants: dict[str, SlotSource] = {}
    errors: list[GraphQLError] = []
    introspects = False
    for key, nodes in fields.items():
        name = nodes[0].name.value
        if name in INTROSPECTION and not schema.introspects:
            errors.append(GraphQLError(f'Unknown field "{name}" on type Query', nodes, path=[key]))
            continue
        try:
            output = _root_output(compiler, root, key, nodes, failed.get(key))
        except GraphQLError as error:
            if isinstance(schema.object_type(QUERY).fields[name].type, GraphQLNonNull):
                raise
            errors.append(error)
            constants[key] = Fixed("null")
            output = Null()
        match output:
            case Text(text):
                constants[key] = Fixed(f'"{text}"')
            case JsonText(Parameter(source=source)):
                constants[key], introspects = source, True
        members[key] = member_key(key, nodes[0]), output
    if len(constants) == len(members):
        has_data = not fields or len(errors) < len(fields)
        plan = OperationPlan(constants=tuple(constants.items()), errors=tuple(errors), has_data=has_data)
        return replace(plan, introspects=introspects)
    keys = [None if key in constants else key for key in members]
    statement = compile_query(Object(tuple(members.values())), dialect_of(schema.view.catalog))
    return replace(_plan(compiler, (statement,), keys, errors), introspects=introspects)


def _root_output(
    compiler: Compiler, root: str, key: str, nodes: list[FieldNode], failure: GraphQLError | None
) -> Output:
    if failure is not None:
        raise failure
    name = nodes[0].name.value
    if name in INTROSPECTION:
        return JsonText(Parameter(IntrospectionResult(key), "json"))
    return Text(root) if name == "__typename" else compiler.at(key, nodes, partial(_field_output, compiler))


def _plan(
    compiler: Compiler,
    statements: tuple[Compiled, ...],
    keys: list[str | None],
    errors: Iterable[GraphQLError] = (),
) -> OperationPlan:
    maximum = sum(cost.maximum() for cost in compiler.costs)
    return OperationPlan(statements, (), tuple(compiler.costs), maximum, tuple(errors), tuple(keys))


def _plan_mutation(compiler: Compiler, fields: SelectedFields) -> OperationPlan:
    steps: list[tuple[Key, OperationStep]] = []
    keys: list[str | None] = []
    for key, nodes in fields.items():
        is_typename = nodes[0].name.value == "__typename"
        step: OperationStep = (
            Text(MUTATION) if is_typename else compiler.at(key, nodes, partial(mutation_step, compiler))
        )
        steps.append((member_key(key, nodes[0]), step))
        keys.append(None if is_typename else key)
    dialect = dialect_of(compiler.schema.view.catalog)
    if not (dialect.separate_messages and needs_several_messages([step for _, step in steps])):
        plan = _plan(compiler, compile_mutations(tuple(steps), dialect), keys)
        return replace(plan, read_only=False)
    separate = compile_separately(dialect, list(fields), [step for _, step in steps])
    plan = _plan(compiler, tuple(each for field in separate for each in field.statements), keys)
    return replace(plan, fields=separate, read_only=False)


def _field_output(compiler: Compiler, nodes: list[FieldNode]) -> Output:
    name, arguments = nodes[0].name.value, compiler.arguments(nodes[0], QUERY)
    match compiler.schema.query_fields.find(name):
        case TableField(TableFieldKind.BY_KEY, view):
            return compiler.by_key(view, nodes, arguments)
        case TableField(view=view):
            return compiler.connection(view, Rows(view.table), nodes, arguments)
        case FunctionField() as function:
            return function_output(compiler, function, nodes, arguments)
        case None if name == "node":
            return compiler.node(nodes, as_leaf(arguments["nodeId"]))
        case None:  # heartbeat: validation has rejected unknown fields
            return CurrentTime()


def check_cost(
    plan: OperationPlan, variables: Variables, limit: int, request: GraphQLRequest
) -> Mapping[str, Any]:
    """Return the response's ``extensions``, with the cost if the request asks for it.

    :raises RequestRejected: the operation may touch too many rows.
    """
    has_cost = request.extensions is not None and request.extensions.get("cost") is True
    cost = plan.cost(variables)
    extensions = {"cost": {"rows": cost, "limit": limit}} if has_cost else {}
    if cost > limit:
        message = (
            f"The operation may touch {cost} rows, more than the {limit} allowed: "
            "request smaller pages with `first`, or nest fewer collections."
        )
        raise RequestRejected(Stage.VALIDATION, message, extensions=extensions)
    return extensions
