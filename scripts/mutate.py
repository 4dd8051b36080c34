"""Break the rules of order one at a time, and see that a test notices each time.

    python scripts/mutate.py [MODULE ...] [--only TEXT]

Each mutant is one small change of a module: a comparison, an `and`, a number, a `not`, a returned
value, a dropped statement. It lives in a forked process only, which then runs the module's tests
(scripts/mutants.toml); no file is touched. Survivors must be explained in mutants.toml: one that is
not, or an explanation without its survivor, is an error. Printed at the end: the tables of
docs/guarantees.md. What is not mutated: strings (so neither patterns nor SQL), messages of
exceptions, annotations, decorators, imports.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import resource
import sys
import time
import tomllib
import traceback
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
CPU_SECONDS: Final = 60  # of one mutant: whoever takes more hangs, and is found out
PASSED, FAILED, BROKEN = 0, 1, 2  # pytest's exit codes; BROKEN: not even to be imported
CRASHED: Final = 70  # this program's own fault

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNTOUCHED: Final = frozenset(["annotation", "returns", "decorator_list", "format_spec", "exc"])
_DROPPED: Final = (ast.Expr, ast.AugAssign, ast.Raise, ast.If, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: `new` takes the place of what stands in a field of a node, or in a list there.

    Attributes:
        node: the node that is changed.
        field: which of its fields.
        at: place in the field's list; None if it is none.
        new: what comes there.
        shown: a node around it that is large enough to be recognised.
        owner: the function or class it is in.
    """

    node: ast.AST
    field: str
    at: int | None
    new: ast.AST | int | str
    shown: ast.AST
    owner: str

    def put(self, what: Any) -> Any:
        """Put something in the place; returns what was there."""
        if self.at is None:
            old = getattr(self.node, self.field)
            setattr(self.node, self.field, what)
            return old
        places = getattr(self.node, self.field)
        old, places[self.at] = places[self.at], what
        return old

    def label(self) -> str:
        """What it is, without line numbers."""
        before = _head(self.shown)
        old = self.put(self.new)
        after = _head(self.shown)
        self.put(old)
        if isinstance(self.new, ast.Pass):
            return f"{self.owner}: without {_head(old)}"
        return f"{self.owner}: {before} -> {after}"


def mutants(tree: ast.Module) -> list[tuple[str, Mutant]]:
    """All mutants of a module, each with a name of its own."""
    seen: Counter[str] = Counter()
    found = []
    for mutant in _walk(tree, [], "module"):
        label = mutant.label()
        seen[label] += 1
        found.append((label if seen[label] == 1 else f"{label} (#{seen[label]})", mutant))
    return found


def _head(node: ast.AST) -> str:
    return ast.unparse(node).strip().split("\n", maxsplit=1)[0]


def _walk(node: ast.AST, above: list[ast.AST], owner: str) -> Iterator[Mutant]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        owner = node.name if owner == "module" else f"{owner}.{node.name}"
    path = [*above, node]
    shown = next((n for n in reversed(path) if isinstance(n, ast.stmt) or len(_head(n)) > 24), node)
    for field, at, new in _changes(node):
        yield Mutant(node, field, at, new, shown, owner)
    for field, value in ast.iter_fields(node):
        if field in _UNTOUCHED:
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST):
                continue
            for new in _replacements(child, path):
                yield Mutant(node, field, at, new, shown, owner)
            yield from _walk(child, path, owner)


def _changes(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST | int | str]]:
    """What may change inside of a node."""
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            yield from (("ops", at, new()) for new in _COMPARISONS[type(op)])
    elif isinstance(node, ast.BoolOp):
        yield "op", None, ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        yield "op", None, _OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Name) and node.id in _CALLS:
        yield "id", None, _CALLS[node.id]
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "value", None, not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield "value", None, node.value + 1
        yield "value", None, node.value - 1
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "value", None, ast.Constant(None)


def _replacements(node: ast.AST, path: list[ast.AST]) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            rest = [*node.values[:at], *node.values[at + 1 :]]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif _is_condition(node, path[-1]) and not isinstance(node, ast.Compare):
        yield ast.UnaryOp(ast.Not(), node)  # type: ignore[arg-type]  # a condition is an expression
    elif _may_go(node, path):
        yield ast.Pass()


def _is_condition(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(parent, ast.If | ast.IfExp | ast.While):
        return node is parent.test
    return isinstance(parent, ast.comprehension) and node in parent.ifs


def _may_go(node: ast.AST, path: list[ast.AST]) -> bool:
    """Whether a statement can be left out and the rest still has its names."""
    function = next((n for n in reversed(path) if isinstance(n, ast.FunctionDef)), None)
    if function is None or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return False
    if not isinstance(node, ast.Assign):
        return isinstance(node, _DROPPED)
    stored = Counter(map(_stored, ast.walk(function)))
    stored.update(arg.arg for arg in ast.walk(function) if isinstance(arg, ast.arg))
    names = {_stored(n) for target in node.targets for n in ast.walk(target)} - {None}
    return all(stored[name] > 1 for name in names)


def _stored(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# --- running --------------------------------------------------------------------------------------


def preload(names: list[str]) -> None:
    """Import what the tests need of other people's code, so that no mutant has to."""
    for name in ("pytest", "hypothesis", "hypothesis.strategies", "numpy", *names):
        importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/")
        if name != "__main__" and file.is_relative_to(ROOT) and "site-packages" not in file.parts:
            del sys.modules[name]


def outcome(name: str, path: Path, tree: ast.Module, tests: list[str]) -> int:
    """The exit code of pytest with the module as in the tree, in a process of its own."""
    child = os.fork()
    if child == 0:
        code = CRASHED
        try:
            code = _run(name, path, tree, tests)
        except BaseException:  # noqa: BLE001 - the parent reports it; nothing may go on from here
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return FAILED if status < 0 else status


def _run(name: str, path: Path, tree: ast.Module, tests: list[str]) -> int:
    import hypothesis
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutants")
    package, _, last = name.rpartition(".")
    module = types.ModuleType(name)
    module.__file__, module.__package__ = str(path), package
    parent = importlib.import_module(package)
    sys.modules[name] = module
    try:
        exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), module.__dict__)  # noqa: S102
    except Exception:  # noqa: BLE001 - whatever it raises, nobody could import it
        return BROKEN
    setattr(parent, last, module)
    options = ["-x", "-q", "-m", "not long", "--noconftest", "-p", "no:cacheprovider"]
    preloaded = "ignore::pytest.PytestAssertRewriteWarning"
    return int(pytest.main([*options, "-W", preloaded, *tests]))


@dataclass(slots=True)
class Tally:
    """What became of one module's mutants."""

    module: str
    made: int
    survived: list[str]
    seconds: float


def judge(name: str, tests: list[str], only: str) -> Tally:
    """Run the mutants of a module (`core.token` for ratchet's) whose labels have that in them."""
    path, module = ROOT / (name.replace(".", "/") + ".py"), f"ratchet.{name}"
    source = path.read_text()
    began = time.monotonic()
    if outcome(module, path, ast.parse(source), tests) != PASSED:
        raise SystemExit(f"{name}: its tests fail without a mutant: {' '.join(tests)}")
    tree = ast.parse(source)
    made = [(label, mutant) for label, mutant in mutants(tree) if only in label]
    survived = []
    for label, mutant in made:
        old = mutant.put(mutant.new)
        code = outcome(module, path, tree, tests)
        mutant.put(old)
        if code not in {PASSED, FAILED, BROKEN}:
            raise SystemExit(f"{name}: pytest ended with {code} at {label}")
        if code == PASSED:
            survived.append(label)
            print(f"survived: {name}.{label}", flush=True)
    return Tally(name, len(made), survived, time.monotonic() - began)


def main() -> int:
    """Run the modules named, or all; the exit code says whether all survivors are explained."""
    parser = argparse.ArgumentParser(description="Break rules, and see that tests notice.")
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--only", default="", help="only mutants whose labels have this in them")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and it takes time
    config = tomllib.loads((ROOT / "scripts" / "mutants.toml").read_text())
    names = options.modules or list(config)
    preload([f"ratchet.{name}" for name in names])
    wrong = []
    tallies = []
    for name in names:
        tally = judge(name, config[name]["tests"], options.only)
        tallies.append(tally)
        print(
            f"{name}: {tally.made} mutants, {len(tally.survived)} survived, {tally.seconds:.0f} s",
            flush=True,
        )
        explained = config[name].get("survivors", {})
        wrong += [f"not explained: {name}.{one}" for one in tally.survived if one not in explained]
        wrong += [
            f"explained, but killed: {name}.{one}"
            for one in explained
            if options.only in one and one not in tally.survived
        ]
    print("\n| module | mutants | killed | survived |\n|---|---|---|---|")
    for t in tallies:
        print(f"| `{t.module}` | {t.made} | {t.made - len(t.survived)} | {len(t.survived)} |")
    print("\n| module | survivor | why |\n|---|---|---|")
    for t in tallies:
        reasons = config[t.module].get("survivors", {})
        for one in t.survived:
            print(
                f"| `{t.module}` | `{one.replace('|', chr(92) + '|')}` | {reasons.get(one, '?')} |"
            )
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
