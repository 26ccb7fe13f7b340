"""Names of modules that are not here: each is a `Missing`, which can be a decorator, a base, a number that compares with none."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any


class MissingUsed(ImportError):
    """Something that is stood in for was needed after all."""


class Missing:
    """A name of a module that is not here. Called with one function it is a decorator that leaves it as it is."""

    def __init__(self, path: str, seen: Seen) -> None:
        self._path, self._seen = path, seen
        self.__name__ = path.rpartition(".")[2]

    def __call__(self, *args: Any, **more: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not more and not isinstance(args[0], Missing):
            return args[0]
        if configs := _configs(args, more):        # a decorator of their own around triton.autotune
            import triton

            return triton.autotune(configs=configs, key=more.get("key") or [])
        self._seen.used.add(self._path)
        self._seen.given((args, more))
        return Missing(f"{self._path}()", self._seen)

    def __getattr__(self, name: str) -> Any:
        if is_special(name):
            raise AttributeError(name)
        return Missing(f"{self._path}.{name}", self._seen)

    def __getitem__(self, key: Any) -> Any:
        return Missing(f"{self._path}[]", self._seen)

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __len__(self) -> int:
        return 0

    def __or__(self, other: Any) -> Any:
        return self

    def __lt__(self, other: Any) -> bool:
        return False

    __ror__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __or__
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __or__
    __le__ = __gt__ = __ge__ = __contains__ = __lt__

    def __index__(self) -> int:
        raise MissingUsed(f"{self._path} is not here, and its value is needed")

    __int__ = __float__ = __index__


def is_special(name: str) -> bool:
    """Return whether Python itself asks for a name; __syncthreads is one of the file's."""
    return name.startswith("__") and name.endswith("__")


def _configs(given: Sequence[Any], more: dict[str, Any]) -> list[Any]:
    listed = more.get("configs", given[0] if given else None)
    return list(listed) if isinstance(listed, list | tuple) and listed and all(
        type(config).__name__ == "Config" for config in listed) else []


class Seen:
    """What was stood in for: `modules` by name with why, `used` names of them that were called; `given` is told what they get."""

    def __init__(self) -> None:
        self.given: Callable[[Any], None] = lambda values: None
        self.modules: dict[str, str] = {}
        self.used: set[str] = set()
        self.tried: set[str] = set()


class MissingModule(ModuleType):
    def __init__(self, name: str, seen: Seen) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__all__: list[str] = []
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "0.0.0"
        if is_special(name):
            raise AttributeError(name)
        if name[:1].isupper() and not name.isupper():
            return _stand_in_class(name, f"{self.__name__}.{name}", self._seen)
        return Missing(f"{self.__name__}.{name}", self._seen)


class _MissingClass(ABCMeta):
    """Of a class that is not here: every attribute of it is a `Missing`, as a member of an enumeration would be."""

    _ridgepoint: tuple[str, Seen]

    def __getattr__(cls, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        path, report = cls._ridgepoint
        return Missing(f"{path}.{attribute}", report)

    def __getitem__(cls, key: Any) -> Any:
        return cls


def _stand_in_class(name: str, path: str, seen: Seen) -> type:
    """Return a class that can be a base, and whose instances have every attribute, each a `Missing`."""
    def of_instance(self: Any, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Missing(f"{path}().{attribute}", seen)

    return _MissingClass(name, (), {"__init__": lambda self, *given, **more: None, "__getattr__": of_instance,
                                    "_ridgepoint": (path, seen)})
