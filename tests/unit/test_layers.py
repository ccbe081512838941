"""The layers of docs/architecture.md: imports go down, and what is pure touches its arguments alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "daemon" / "dataapi"

# From the bottom to the top; packages of one line do not import each other.
LAYERS = """
    concurrency  settings
    http
    telemetry
    database
    catalog
    sql
    auth
    graphql  rest  webhooks
    live
    web
    service
    cli  tap  testing
"""

# The modules that talk to the reactor, the network, the clock or chance; all others are pure.
INPUT_AND_OUTPUT = {
    "auth": "published_keys transaction",
    "catalog": "reflect watcher",
    "cli": "admin_client init main webhooks",
    "concurrency": "tasks timers wait_queue",
    "database": (
        "address cancel connection connector coordinator embedded embedded_supervisor failover health "
        "listener open_transaction polling pool pooler primary_servers query_log replicas script "
        "server_watch session steps"
    ),
    "graphql": "document_store engine separate_execution",
    "http": "outgoing_tls",
    "live": "changes cohort protocols queries subscribers",
    "rest": "handler openapi.descriptions run_batch stream",
    "service": (
        "__main__ assembly configuration configuration.database configuration.endpoints configuration.keys "
        "configuration.load configuration.parsers configuration.postgrest configuration.sources "
        "database_settings demo demo_webhooks inspection process project replica_inspection root_service "
        "settings_sources sockets webhooks worker worker_pipe worker_process workers"
    ),
    "telemetry": "logs process requests tracing",
    "web": (
        "admin app assets console.data console.routes pipeline portal routing server.connection "
        "server.request server.site"
    ),
    "webhooks": (
        "delivery.attempt delivery.dispatcher delivery.http_client delivery.outcomes delivery.proxy "
        "delivery.resolver identifiers management.api management.authorization management.deliveries "
        "management.endpoints management.idempotency management.listing management.openapi "
        "management.operations management.organizations management.portal management.publishing "
        "management.url_check plugins store store.directory "
        "store.endpoints store.enqueue store.history store.queue"
    ),
}

IMPURE = {
    *(
        "asyncio",
        "klein",
        "psycopg",
        "psycopg2",
        "random",
        "secrets",
        "select",
        "signal",
        "socket",
        "subprocess",
        "time",
    ),
    *("treq", "twisted", "txpostgres"),
}


def modules() -> dict[str, Path]:
    """Return the path of each module by its name below ``dataapi``."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts).removesuffix("__init__").removesuffix(".")] = path
    return found


MODULES = modules()


def imported(node: ast.AST, *, for_types: bool = True) -> Iterator[str]:
    """Give the names of modules that a tree imports.

    :param for_types: whether those count that only a type checker imports.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test) and not for_types:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield whole if whole.removeprefix("dataapi.") in MODULES else child.module
        yield from imported(child, for_types=for_types)


@cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(MODULES[module].read_text("utf-8"))


@cache
def imports_of(module: str, *, for_types: bool = True) -> frozenset[str]:
    """Return what a module imports; modules of the product by their name below ``dataapi``."""
    names = imported(tree_of(module), for_types=for_types)
    return frozenset(name.removeprefix("dataapi.") for name in names)


def layer_of(module: str) -> int:
    """Return the number of a module's layer, the lowest first."""
    package = module.partition(".")[0]
    [number] = [n for n, line in enumerate(LAYERS.strip().splitlines()) if package in line.split()]
    return number


def test_imports_go_down() -> None:
    upward = [
        f"{module} imports {name}"
        for module in filter(None, MODULES)
        for name in imports_of(module) & MODULES.keys()
        if name.partition(".")[0] != module.partition(".")[0] and layer_of(name) >= layer_of(module)
    ]
    assert upward == []


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name.strip("_"), []).append(module)
    assert not {name: among for name, among in found.items() if len(among) > 1}


def test_modules_do_not_import_each_other_in_circles() -> None:
    imports = {module: _imports_at_top(module) for module in MODULES}
    while imports:
        lowest = [module for module, names in imports.items() if names.isdisjoint(imports)]
        assert lowest, f"among these modules are circles: {', '.join(sorted(imports))}"
        for module in lowest:
            del imports[module]


def _imports_at_top(module: str) -> set[str]:
    top = [node for node in tree_of(module).body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {name.removeprefix("dataapi.") for node in top for name in imported(ast.Module([node], []))} - {
        module
    }


# What Twisted and treq offer for TLS to a server, with checks of their own.
UNVERIFIED_TLS = {
    "BrowserLikePolicyForHTTPS",
    "CertificateOptions",
    "ClientContextFactory",
    "SSL4ClientEndpoint",
    "clientFromString",
    "connectSSL",
    "optionsForClientTLS",
    "startTLS",
}


def test_outgoing_tls_is_verified_by_one_module() -> None:
    for module in MODULES.keys() - {"http.outgoing_tls"}:
        names = set()
        for node in ast.walk(tree_of(module)):
            names |= {getattr(node, member, "") for member in ("id", "attr", "name")}
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Agent", "ProxyAgent"):
                assert ast.unparse(node.args[1]) == "OutgoingTls()", module
        assert not names & UNVERIFIED_TLS, module
        assert "treq" not in imports_of(module), f"{module}: treq's functions make an agent of their own"


def is_pure(module: str) -> bool:
    """Tell whether a module is said to be pure."""
    if module in ("tap", "testing"):
        return False
    package, _, name = module.partition(".")
    return name not in INPUT_AND_OUTPUT.get(package, "").split()


def test_pure_modules_import_only_pure_modules() -> None:
    assert [name for name in MODULES if name and is_pure(name) and imports_impurity(name)] == []


def test_every_module_that_is_said_to_talk_does() -> None:
    named = {f"{package}.{name}" for package, names in INPUT_AND_OUTPUT.items() for name in names.split()}
    assert named <= set(MODULES)
    talking = {name for name in named if imports_impurity(name)}
    assert talking == named


def imports_impurity(module: str) -> bool:
    """Return whether a module imports something impure."""
    names = imports_of(module, for_types=False)
    return any(name.partition(".")[0] in IMPURE or (name in MODULES and not is_pure(name)) for name in names)
