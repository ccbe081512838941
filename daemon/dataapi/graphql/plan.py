"""The plan of an operation for one shape of its variables, and how it is bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from graphql import FieldNode, GraphQLError, GraphQLNonNull

from dataapi.catalog.registry import TableFieldKind
from dataapi.database.message import Bound
from dataapi.graphql.arguments import SelectedFields, Selector, as_leaf
from dataapi.graphql.compiler import Compiler, Cost, function_output, member_key
from dataapi.graphql.document import GraphQLOperation
from dataapi.graphql.mutation_statements import OperationStep, compile_mutations
from dataapi.graphql.mutations import mutation_step
from dataapi.graphql.outputs import Instant, JsonText
from dataapi.graphql.schema.functions import FunctionField
from dataapi.graphql.schema.role_schema import MUTATION, QUERY, RoleSchema, TableField
from dataapi.graphql.separate_statements import FieldStatements, are_separate, compile_separately
from dataapi.graphql.sources import Fixed, Variables, client_key, source_weight
from dataapi.graphql.transport import RequestRejected, Stage
from dataapi.sql.algebra import Parameter, Rows
from dataapi.sql.dialect import compile_query, dialect_of
from dataapi.sql.outputs import Key, Null, Object, Output, Text
from dataapi.sql.statement import Compiled

PLAN = 600
"""About how many bytes a plan takes besides its statements and their sources."""
INTROSPECTION = frozenset({"__schema", "__type"})


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """A compiled operation.

    :ivar statements: run in order, the last one giving the data; none when the data is constant.
    :ivar constant: the data of an operation that needs no database, as JSON text.
    :ivar maximum: the highest cost with any variables.
    :ivar errors: those of fields that are left out or null.
    :ivar keys: the response keys of the root fields in order; None for one that needs no database.
    :ivar fields: those whose statements are sent one by one; empty where all are sent at once.
    """

    statements: tuple[Compiled, ...]
    constant: str
    costs: tuple[Cost, ...] = ()
    maximum: float = 0
    errors: tuple[GraphQLError, ...] = ()
    keys: tuple[str | None, ...] = ()
    fields: tuple[FieldStatements, ...] = ()

    @property
    def weight(self) -> int:
        """Return about how many bytes the plan takes."""
        return PLAN + sum(map(_weight, self.statements))

    @property
    def length(self) -> int:
        """Return how many characters of SQL the statements have."""
        return sum(len(compiled.statement.text) for compiled in self.statements)

    def unprepared(self) -> OperationPlan:
        """Return the plan with statements that are sent as they are.

        A statement that does not come again would only take the place of one that does.
        """
        statements = tuple(compiled.unprepared() for compiled in self.statements)
        return replace(self, statements=statements, fields=tuple(each.unprepared() for each in self.fields))

    def cost(self, variables: Variables) -> int:
        """Return how many rows the operation may touch."""
        return sum(cost.rows(variables) for cost in self.costs)

    def readings(self, variables: Variables) -> list[Bound]:
        """Return statements that only read the values, and so fail where PostgreSQL cannot read one."""
        return [reading.bind(variables) for each in self.statements for reading in each.readings]

    def failures(self, variables: Variables) -> dict[str, GraphQLError]:
        """Return the errors of values that cannot be bound, by the response key of their root field.

        :raises GraphQLError: an error belongs to no root field.
        """
        found: dict[str, GraphQLError] = {}
        for compiled in self.statements:
            for source in compiled.sources:
                try:
                    source.bind(variables)
                except GraphQLError as error:
                    if not error.path:
                        raise
                    found.setdefault(str(error.path[0]), error)
        return found


def _weight(compiled: Compiled) -> int:
    own = len(compiled.statement.text) + sum(map(source_weight, compiled.sources))
    return own + sum(map(_weight, compiled.readings))


def root_fields(operation: GraphQLOperation, variables: Variables) -> SelectedFields:
    """Return the operation's root fields by response key."""
    selector = Selector(operation.fragments, variables)
    return selector.fields((operation.node.selection_set,), frozenset({operation.root}))


def introspection_fields(fields: SelectedFields) -> SelectedFields:
    """Return those of the root fields that introspect the schema."""
    return {key: nodes for key, nodes in fields.items() if nodes[0].name.value in INTROSPECTION}


def plan_query(
    operation: GraphQLOperation,
    schema: RoleSchema,
    variables: Variables,
    fields: SelectedFields,
    introspected: Mapping[str, str],
    failed: Mapping[str, GraphQLError],
) -> OperationPlan:
    """Compile a query.

    A nullable field that fails is null; so is the data when every field failed.

    :param fields: its root fields.
    :param introspected: the answers of introspection fields by response key, as JSON text.
    :param failed: the errors of fields whose values cannot be bound, by response key.
    :raises GraphQLError: invalid arguments of a non-null field, which graphql-core's validation cannot find.
    """
    compiler = Compiler(schema, operation.fragments, variables)
    members: dict[str, tuple[Key, Output]] = {}
    constants: dict[str, str] = {}
    errors: list[GraphQLError] = []
    for key, nodes in fields.items():
        name = nodes[0].name.value
        if name in INTROSPECTION and key not in introspected:
            errors.append(GraphQLError(f'Unknown field "{name}" on type Query', nodes, path=[key]))
            continue
        try:
            if key in failed:
                raise failed[key]
            if name in INTROSPECTION:
                constants[key] = introspected[key]
                output: Output = JsonText(Parameter(Fixed(introspected[key]), "json"))
            elif name == "__typename":
                constants[key] = f'"{operation.root}"'
                output = Text(operation.root)
            else:
                output = compiler.at(key, nodes, partial(_field_output, compiler))
        except GraphQLError as error:
            if isinstance(schema.object_type(QUERY).fields[name].type, GraphQLNonNull):
                raise
            errors.append(error)
            constants[key] = "null"
            output = Null()
        members[key] = member_key(key, nodes[0]), output
    if fields and len(errors) == len(fields):
        return OperationPlan((), "null", errors=tuple(errors))
    if len(constants) == len(members):
        # Names of GraphQL need no escapes in JSON.
        data = ", ".join(f'"{client_key(key, variables)}": {value}' for key, value in constants.items())
        return OperationPlan((), f"{{{data}}}", errors=tuple(errors))
    keys = [None if key in constants else key for key in members]
    statement = compile_query(Object(tuple(members.values())), dialect_of(schema.view.catalog))
    return _plan(compiler, (statement,), keys, errors)


def _plan(
    compiler: Compiler,
    statements: tuple[Compiled, ...],
    keys: list[str | None],
    errors: Iterable[GraphQLError] = (),
) -> OperationPlan:
    maximum = sum(cost.maximum() for cost in compiler.costs)
    return OperationPlan(statements, "", tuple(compiler.costs), maximum, tuple(errors), tuple(keys))


def plan_mutation(
    operation: GraphQLOperation, schema: RoleSchema, variables: Variables, fields: SelectedFields
) -> OperationPlan:
    """Compile a mutation: its fields in order, all or nothing.

    :raises GraphQLError: invalid arguments, which graphql-core's validation cannot find.
    """
    compiler = Compiler(schema, operation.fragments, variables)
    steps: list[tuple[Key, OperationStep]] = []
    keys: list[str | None] = []
    for key, nodes in fields.items():
        is_name = nodes[0].name.value == "__typename"
        step: OperationStep = (
            Text(MUTATION) if is_name else compiler.at(key, nodes, partial(mutation_step, compiler))
        )
        steps.append((member_key(key, nodes[0]), step))
        keys.append(None if is_name else key)
    dialect = dialect_of(schema.view.catalog)
    if not (dialect.sends_apart and are_separate([step for _, step in steps])):
        return _plan(compiler, compile_mutations(tuple(steps), dialect), keys)
    separate = compile_separately(dialect, list(fields), [step for _, step in steps])
    plan = _plan(compiler, tuple(each for field in separate for each in field.statements), keys)
    return replace(plan, fields=separate)


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
        case None:  # heartbeat, the only other field that validation lets through
            return Instant()


def check_cost(plan: OperationPlan, variables: Variables, limit: int) -> None:
    """Refuse an operation that may touch too many rows.

    :raises RequestRejected: with the cost and the limit.
    """
    if plan.maximum <= limit:
        return
    cost = plan.cost(variables)
    if cost > limit:
        message = (
            f"The operation may touch {cost} rows, more than the {limit} allowed: "
            "ask for smaller pages with `first`, or nest fewer collections."
        )
        raise RequestRejected(Stage.VALIDATION, message)
