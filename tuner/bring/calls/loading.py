"""A kernel file imported where much of what it imports is missing: modules of its package, and whole packages, are stood in for.

What only other functions use is no reason not to read a kernel. A package's `__init__` runs only when something asks a name of it;
a sibling that fails keeps what it had defined; a module that is nowhere is one whose every name is a `Missing`. A module that is
imported within `try` with `except ImportError` stays missing, as the file is prepared for that.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.bring.calls.choices import CHOOSE, Choices, mark_choices
from tuner.bring.calls.loading_places import folders_of, package_of
from tuner.bring.calls.standing.missing import Missing, MissingModule, Seen, is_special
from tuner.bring.calls.top_level import FAILED, leave_out_runs
from tuner.bring.calls.values import forget_given

NEVER = {"torch", "triton", "numpy", "tuner", "profiles", "sympy", "usercustomize", "sitecustomize", "apport_python_hook",
         *sys.stdlib_module_names}
MAY_LACK = ("torch", "triton", "numpy")         # parts of them come and go with versions
MAX_MARKED_BYTES = 2 << 20


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last of all finders: what nothing else finds."""

    def __init__(self, seen: Seen, own: Path) -> None:
        self.seen, self.own = seen, f"{own}/"

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        is_whole = top in NEVER and (top not in MAY_LACK or name == top)
        if is_whole or {name, top} & self.seen.tried or not self._is_asked():
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _is_asked(self) -> bool:
        """Return whether a file of the kernel's own imports: others, and importlib.util.find_spec, find what is there."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "importlib":
            if frame.f_globals.get("__name__") == "importlib.util":
                return False
            frame = frame.f_back            # type: ignore[assignment]
        return frame is not None and str(frame.f_globals.get("__file__", "")).startswith(self.own)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.seen.modules[spec.name] = "not here"
        return MissingModule(spec.name, self.seen)

    def exec_module(self, module: ModuleType) -> None:
        """It has nothing to run."""


class _Tolerant(importlib.machinery.SourceFileLoader):
    """Runs a file of the kernel's own folder or package; what it defined before it failed stays."""

    def __init__(self, name: str, path: str, own: Own) -> None:
        super().__init__(name, path)
        self.own = own

    def exec_module(self, module: ModuleType) -> None:
        if self.is_package(self.name):
            _LazyPackage.of(module, self)
            return
        self.run(module)

    def get_code(self, fullname: str) -> Any:
        """Return the code with its choices marked; it is kept in no file."""
        return self.own.compile(self.get_data(self.path), self.path, fullname, self.is_package(fullname))

    def execute(self, module: ModuleType) -> None:
        """Run the file in its module, as `import` does. Raises what it raises."""
        failed: list[str] = []

        def run_failed(line: int, error: Exception) -> Missing:
            if self.own.is_first_try and asks_for_gpu(error):
                raise error
            failed.append(f"line {line}: {type(error).__name__}: {error}"[:200])
            self.own.seen.modules[f"line {line}"] = f"{type(error).__name__}: {error}"[:160]
            return Missing(f"{self.name}, line {line}", self.own.seen)

        module.__dict__.update({CHOOSE: self.own.choices.choose, FAILED: run_failed})
        try:
            super().exec_module(module)
        except SystemExit:                      # a script, which has defined what it runs
            self.own.seen.modules[self.name] = "it exits while it is imported"
        except Exception as error:
            if not failed:
                raise
            raise RuntimeError(f"{type(error).__name__}: {error} (before it, {failed[0]})") from error

    def run(self, module: ModuleType) -> None:
        """Run the file in its module, a failure noted."""
        try:
            self.execute(module)
        except Exception as error:
            self.own.seen.modules[self.name] = f"{type(error).__name__}: {error}"[:160]
            _let_miss(module, self.own.seen)


def _let_miss(module: ModuleType, seen: Seen) -> None:
    holder = MissingModule(module.__name__, seen)
    module.__dict__.setdefault("__getattr__", holder.__getattr__)


class _LazyPackage(ModuleType):
    """A package whose `__init__` runs when a name of it is needed that is no module of it."""

    @staticmethod
    def of(module: ModuleType, loader: _Tolerant) -> None:
        def lack(name: str) -> Any:
            if is_special(name) and name != "__version__":
                raise AttributeError(name)
            path = f"{module.__name__}.{name}"
            if importlib.machinery.PathFinder.find_spec(path, list(module.__path__)) is not None:
                return importlib.import_module(path)
            if module.__dict__.pop("__getattr__", None) is not None:
                loader.run(module)
                if name in module.__dict__:
                    return module.__dict__[name]
            _let_miss(module, loader.own.seen)
            return module.__dict__["__getattr__"](name)

        module.__dict__["__getattr__"] = lack


class Own:
    """The files that belong to the kernel's file: its folder, or the package that it lies in. First of all finders."""

    def __init__(self, root: Path, top: str, seen: Seen, choices: Choices, is_first_try: bool) -> None:
        self.root, self.top, self.seen, self.choices, self.is_first_try = root, top, seen, choices, is_first_try

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in NEVER or (self.top and name.partition(".")[0] != self.top):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path if path is not None else [str(self.root)])
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader) and spec.origin \
                and self._is_own(spec.origin):
            spec.loader = _Tolerant(name, spec.origin, self)
            return spec
        return None                         # a folder without __init__.py is a package of the next finder

    def _is_own(self, origin: str) -> bool:
        """Return whether a file is one of the kernel's: below its root, and of no environment that lies there too."""
        place = Path(origin)
        return place.is_relative_to(self.root) and (bool(self.top) or "site-packages" not in place.relative_to(self.root).parts)

    def compile(self, text: bytes, path: str, name: str, is_package: bool) -> Any:
        """Return the code of a file, its choices marked; what it is prepared to lack is noted."""
        tree = ast.parse(text, path)
        self.seen.tried |= set(_tried(tree))
        if len(text) <= MAX_MARKED_BYTES and not is_package:
            mark_choices(tree)
            self.seen.modules |= leave_out_runs(tree)
        return compile(tree, path, "exec", dont_inherit=True)


def _tried(tree: ast.Module) -> Iterator[str]:
    """Yield modules that the file itself is prepared to lack."""
    for block in ast.walk(tree):
        if isinstance(block, ast.Try) and any(_catches(handler) for handler in block.handlers):
            for node in (inner for statement in block.body for inner in ast.walk(statement)):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module


def _catches(handler: ast.ExceptHandler) -> bool:
    caught = ast.unparse(handler.type) if handler.type else "Exception"
    return any(name in caught for name in ("ImportError", "ModuleNotFoundError", "Exception"))


def asks_for_gpu(error: Exception) -> bool:
    """Return whether torch says that there is no GPU."""
    return isinstance(error, RuntimeError | AssertionError) and ("CUDA" in str(error) or "NVIDIA" in str(error))


def load_tolerantly(path: Path, choices: Choices, is_first_try: bool = False) -> tuple[ModuleType, Seen]:
    """Import the file; return its module and what was stood in for. Raises what the file itself raises.

    is_first_try  what asks for a GPU is raised in any case: the file is imported again where one is answered for
    """
    root, names = package_of(path)
    report = Seen()
    report.given = forget_given
    own = Own(root, names[0] if len(names) > 1 else "", report, choices, is_first_try)
    sys.path.insert(0, str(root))
    sys.meta_path.insert(0, own)
    sys.meta_path.append(_Finder(report, root))
    name = ".".join(names)
    for depth in range(1, len(names)):
        _import_folder(".".join(names[:depth]), path.resolve().parents[len(names) - 1 - depth])
    loader = _Tolerant(name, str(path), own)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    module.__package__ = name.rpartition(".")[0] if len(names) > 1 else ""
    loader.execute(module)
    return module, report


def _import_folder(name: str, folder: Path) -> None:
    """Import a package that the file lies in; a folder that no import finds is one all the same."""
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
    package = sys.modules.get(name)
    if package is not None and getattr(package, "__file__", None) is None and len(folders_of(folder)) > 1:
        package = None                      # a folder without __init__.py, with one of its name within
    if package is None or not list(getattr(package, "__path__", ())):
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [str(path) for path in folders_of(folder)]
