"""Call stacks of a memory snapshot: each distinct one once, the frame that people look for, and its lines."""

from __future__ import annotations

from typing import Any

_OWN = ("/site-packages/", "/dist-packages/", "/lib/python3")       # code that is not the user's
# the recorder's and the allocator's own frames, which lie innermost in stacks with C++ frames
_INNERMOST = ("torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::", "c10::", "at::detail::", "at::TensorBase",
              "at::cuda::getCUDA")
MAX_LINES, MAX_CHARS = 40, 300
_MAX_FRAMES = 10_000


class Stacks:
    """Numbers stacks by the identity of their list: a pickle shares equal ones."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._frames: list[list[Any]] = []
        self._sites: dict[int, str] = {}

    def number(self, frames: Any) -> int:
        """-1 where there is none."""
        if type(frames) is not list or not frames:
            return -1
        number = self._numbers.get(id(frames))
        if number is None:
            number = self._numbers[id(frames)] = len(self._frames)
            self._frames.append(frames)                            # kept, so that its identity stays its own
        return number

    def site(self, number: int) -> str:
        """Return the innermost frame of the user's own Python code.

        Failing that of any Python code; failing that of PyTorch's C++.
        """
        if number < 0:
            return ""
        known = self._sites.get(number)
        if known is None:
            frames, python = self._split(number)
            own = [frame for frame in python if not any(part in frame["filename"] for part in _OWN)]
            further = [frame for frame in frames if not _text(frame.get("name")).startswith(_INNERMOST)]
            chosen = next(iter(own or python or further or frames), None)
            known = self._sites[number] = _line(chosen) if chosen else ""
        return known

    def lines(self, number: int) -> list[str]:
        """Innermost first, at most MAX_LINES: Python frames where there are any."""
        frames, python = self._split(number)
        shown = [_line(frame) for frame in (python or frames)[:MAX_LINES]]
        return shown + (["…"] if len(python or frames) > MAX_LINES else [])

    def _split(self, number: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All frames, and those of Python."""
        frames = [frame for frame in self._frames[number][:_MAX_FRAMES] if type(frame) is dict]
        return frames, [frame for frame in frames if _text(frame.get("filename")).endswith(".py")]


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _line(frame: dict[str, Any]) -> str:
    name, path, line = _text(frame.get("name"))[:MAX_CHARS], _text(frame.get("filename"))[-MAX_CHARS:], frame.get("line")
    file = path.replace("\\", "/").rpartition("/")[2]
    place = f"{file}:{line}" if file not in ("", "??") and type(line) is int and line else file.replace("??", "")
    return f"{name} ({place})" if place else name
