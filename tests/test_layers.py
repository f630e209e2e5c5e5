"""The shape of the package, read from its source: imports point one way, and Trainer's private members have one home."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers.trainer as upstream_trainer

PACKAGE = Path(__file__).parents[1] / "hf_trainplus"
FLOORS = (  # from the ground up; what stands on one floor does not import its neighbours
    {"results", "identity", "_hooks"},
    {"_upstream"},
    {"evaluation", "decisions", "budget", "monitor"},
    {"store"},
    {"assess", "report"},
    {"training"},
    {"training_args"},
    {"callbacks", "launch"},
    {"trainer", "cli"},
)
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}
SOURCES = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def runtime_nodes(tree: ast.AST, *, inside_functions: bool = True) -> Iterator[ast.AST]:
    """Walk a module without its ``if TYPE_CHECKING`` blocks, which import nothing when the program runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from runtime_nodes(other, inside_functions=inside_functions)
            continue
        yield node
        if inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from runtime_nodes(node, inside_functions=inside_functions)


def imported(source: str, *, inside_functions: bool = True) -> set[str]:
    """Full names of the modules that a source imports; relative imports are refused, they would hide an arrow."""
    found = set()
    for node in runtime_nodes(ast.parse(source), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import: {ast.unparse(node)}"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def arrows(sources: dict[Path, str]) -> set[tuple[str, str]]:
    """(part, part that it imports) between the parts of the package."""
    found = set()
    for path, source in sources.items():
        for name in imported(source):
            root, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if target == "__version__":  # a constant of the package itself, which imports no part
                continue
            if root == "hf_trainplus" and target and target != part_of(path):
                found.add((part_of(path), target))
    return found


def climbing(found: set[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted((part, target) for part, target in found if FLOOR_OF.get(target, 99) >= FLOOR_OF[part])


def test_every_part_has_a_floor():
    assert {part_of(path) for path in SOURCES} - {"__init__"} <= set(FLOOR_OF)


def test_imports_point_down_and_neighbours_do_not_import_each_other():
    found = arrows({path: source for path, source in SOURCES.items() if part_of(path) != "__init__"})
    assert climbing(found) == []
    assert ("trainer", "training") in found


@pytest.mark.parametrize(
    ("part", "line", "expected"),
    [
        ("decisions", "from hf_trainplus.evaluation.loop import run", [("decisions", "evaluation")]),
        ("monitor", "def f():\n    import hf_trainplus.budget", [("monitor", "budget")]),
        ("evaluation", "from hf_trainplus import training", [("evaluation", "training")]),
        ("callbacks", "from hf_trainplus import PlusTrainer", [("callbacks", "PlusTrainer")]),
        ("evaluation", "from hf_trainplus.results import ExampleResults", []),
        ("training", "if TYPE_CHECKING:\n    from hf_trainplus.trainer import PlusTrainer", []),
    ],
)
def test_an_arrow_that_runs_back_up_is_found(part, line, expected):
    assert climbing(arrows({PACKAGE / part / "made_up.py": line})) == expected


def test_the_package_itself_imports_nothing_but_the_standard_library():
    assert {name.partition(".")[0] for name in imported(SOURCES[PACKAGE / "__init__.py"])} <= sys.stdlib_module_names


@pytest.mark.parametrize("path", [path for path in SOURCES if part_of(path) == "decisions"], ids=lambda path: path.name)
def test_decisions_load_numpy_alone_and_read_arrow_columns_where_they_meet_them(path):
    at_load, anywhere = (
        {name.partition(".")[0] for name in imported(SOURCES[path], inside_functions=inside)}
        for inside in (False, True)
    )
    assert at_load - sys.stdlib_module_names <= {"numpy", "hf_trainplus"}
    assert anywhere - sys.stdlib_module_names <= {"numpy", "hf_trainplus", "pyarrow"}


def trainer_privates() -> set[str]:
    """Private methods and attributes of the upstream Trainer, those that it sets on itself included."""
    names = {name for name in dir(upstream_trainer.Trainer) if name.startswith("_") and not name.startswith("__")}
    for node in ast.walk(ast.parse(Path(upstream_trainer.__file__).read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            names |= {node.attr} if node.attr.startswith("_") and not node.attr.startswith("__") else set()
    return names


def private_uses(path: Path, source: str, privates: set[str]) -> list[str]:
    """Where a source reads, calls or overrides one of ``privates`` on anything but an object of its own kind."""
    tree, found = ast.parse(source), []
    is_trainer = part_of(path) == "trainer"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in privates:
            own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"} and not is_trainer
            found += [] if own else [f"{path.name}:{node.lineno} {ast.unparse(node)}"]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "setattr", "hasattr"}:
            name = node.args[1]
            if isinstance(name, ast.Constant) and name.value in privates:
                found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
        elif isinstance(node, ast.FunctionDef) and is_trainer and node.name in privates:
            found.append(f"{path.name}:{node.lineno} def {node.name}")
    return found


def test_private_members_of_trainer_are_used_in_one_file_only():
    privates = trainer_privates()
    assert {"_evaluate", "_save_checkpoint", "_maybe_log_save_evaluate"} <= privates
    found = [
        use
        for path, source in SOURCES.items()
        if part_of(path) != "_upstream"
        for use in private_uses(path, source, privates)
    ]
    assert found == []


def test_the_one_file_does_use_them():
    path = PACKAGE / "_upstream.py"
    assert private_uses(path, SOURCES[path], trainer_privates())


@pytest.mark.parametrize(
    ("part", "line", "count"),
    [
        ("training/made_up.py", "trainer._save_checkpoint(model, None)", 1),
        ("callbacks/made_up.py", "getattr(trainer, '_evaluate')()", 1),
        ("trainer.py", "class T:\n    def f(self):\n        return super()._evaluate()", 1),
        ("trainer.py", "class T:\n    def _evaluate(self):\n        pass", 1),
        ("callbacks/made_up.py", "class C:\n    def f(self):\n        return self._evaluate()", 0),
        ("training/made_up.py", "trainer.evaluate()", 0),
    ],
)
def test_a_private_use_is_found(part, line, count):
    assert len(private_uses(PACKAGE / part, line, {"_evaluate", "_save_checkpoint"})) == count
