"""Modules import only lower layers (docs/architecture.md), and pure modules have no side effects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "daemon" / "dataapi"

# Layers from bottom to top. Packages on the same line do not import each other.
LAYERS = """
    concurrency  settings
    http
    telemetry
    database
    catalog
    sql
    auth
    advisor  graphql  rest  webhooks
    live  mcp
    web
    service
    cli  tap  testing
"""

# Modules that use the reactor, the network, the clock or random numbers. All other modules are pure.
INPUT_AND_OUTPUT = {
    "auth": "published_keys transaction",
    "catalog": "reflect watcher",
    "cli": "admin_client init main webhooks",
    "concurrency": "on_demand tasks timers wait_queue",
    "database": (
        "address cancel connection connector coordinator embedded embedded_supervisor express_lane failover "
        "health listener open_transaction polling pool pooler primary_servers query_log replicas script "
        "server_watch session steps"
    ),
    "graphql": "document_store engine separate_execution",
    "http": "outgoing_tls",
    "live": "changes cohort protocols queries subscribers",
    "mcp": "server",
    "rest": "conditional handler openapi.descriptions run_batch stream",
    "service": (
        "__main__ assembly configuration configuration.database configuration.endpoints configuration.keys "
        "configuration.load configuration.parsers configuration.postgrest configuration.sources creation "
        "database_settings demo demo_webhooks embedded_source inspection process project replica_inspection "
        "root_service settings_sources sockets webhooks worker worker_pipe worker_process workers"
    ),
    "telemetry": "logs process requests tracing",
    "web": (
        "admin admin_listener app assets console.data console.routes klein_routes mcp routes pipeline "
        "portal routing server.connection server.request server.site websocket"
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
    """Return the path of each module by its name within ``dataapi``."""
    paths = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        paths[".".join(parts).removesuffix("__init__").removesuffix(".")] = path
    return paths


MODULES = modules()


def imported(node: ast.AST, *, for_types: bool = True) -> Iterator[str]:
    """Yield the names of modules that a syntax tree imports.

    :param for_types: whether to include imports for type checkers.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test) and not for_types:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                full_name = f"{child.module}.{alias.name}"
                yield full_name if full_name.removeprefix("dataapi.") in MODULES else child.module
        yield from imported(child, for_types=for_types)


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text("utf-8"))


@cache
def imports_of(module: str, *, for_types: bool = True) -> frozenset[str]:
    """Return a module's imports. The names of our modules do not contain ``dataapi.``."""
    names = imported(tree_of(module), for_types=for_types)
    return frozenset(name.removeprefix("dataapi.") for name in names)


def layer_of(module: str) -> int:
    """Return the number of a module's layer, counted from the bottom."""
    package = module.partition(".")[0]
    [number] = [n for n, line in enumerate(LAYERS.strip().splitlines()) if package in line.split()]
    return number


def test_imports_go_to_lower_layers() -> None:
    upward = [
        f"{module} imports {name}"
        for module in filter(None, MODULES)
        for name in imports_of(module) & MODULES.keys()
        if name.partition(".")[0] != module.partition(".")[0] and layer_of(name) >= layer_of(module)
    ]
    assert upward == []


def test_class_names_are_unique() -> None:
    modules_by_class: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                modules_by_class.setdefault(node.name.strip("_"), []).append(module)
    assert not {name: modules_ for name, modules_ in modules_by_class.items() if len(modules_) > 1}


def test_imports_are_not_circular() -> None:
    imports = {module: _imports_at_top(module) for module in MODULES}
    while imports:
        lowest = [module for module, names in imports.items() if names.isdisjoint(imports)]
        assert lowest, f"circular imports of these modules: {', '.join(sorted(imports))}"
        for module in lowest:
            del imports[module]


def _imports_at_top(module: str) -> set[str]:
    top = [node for node in tree_of(module).body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {name.removeprefix("dataapi.") for node in top for name in imported(ast.Module([node], []))} - {
        module
    }


# TLS clients of Twisted and treq that do not use our certificate checks.
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
        assert "treq" not in imports_of(module), f"{module}: treq's functions create their own agent"


def is_pure(module: str) -> bool:
    """Return whether a module is declared as pure."""
    if module in ("tap", "testing"):
        return False
    package, _, name = module.partition(".")
    return name not in INPUT_AND_OUTPUT.get(package, "").split()


def test_pure_modules_import_only_pure_modules() -> None:
    assert [name for name in MODULES if name and is_pure(name) and imports_impure(name)] == []


def test_every_module_declared_as_impure_is_impure() -> None:
    declared = {f"{package}.{name}" for package, names in INPUT_AND_OUTPUT.items() for name in names.split()}
    assert declared <= set(MODULES)
    impure = {name for name in declared if imports_impure(name)}
    assert impure == declared


def imports_impure(module: str) -> bool:
    names = imports_of(module, for_types=False)
    return any(name.partition(".")[0] in IMPURE or (name in MODULES and not is_pure(name)) for name in names)
