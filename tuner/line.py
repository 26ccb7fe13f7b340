"""The configurations between the strategy and the GPU: asked, perhaps compiling or compiled, not yet known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuner.bench.runner import CompilesAhead, Incumbent, Runner
from tuner.prune import spill_storm
from tuner.trial import Config, Outcome, Rejected, config_key

WAIT_S = 0.1               # for compilers, before the loop looks again whether it should stop
TellFacts = Callable[[Mapping[str, Mapping[str, Any]]], None]


class OneByOne:
    """Of a runner that compiles what it measures: all that was asked is measured in turn."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._asked: dict[str, Config] = {}
        self.stopped = False                   # the runner was told to stop: what is in the line stays unknown

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def keys(self) -> set[str]:
        return set(self._asked)

    def put(self, configs: Sequence[Config]) -> None:
        self._asked |= {config_key(config): config for config in configs}

    def take(self, incumbent: Incumbent | None) -> Iterator[tuple[Config, Outcome]]:
        """What is known next; nothing when it is not known yet. The first one asked goes first."""
        for config, outcome in self._runner.measure(list(self._asked.values()), incumbent):
            del self._asked[config_key(config)]
            yield config, outcome
        self.stopped = bool(self._asked)

    def clear(self) -> None:
        self._asked.clear()


class Ahead(OneByOne):
    """Of a runner with compilers: whatever compiled first is measured, the others go on compiling meanwhile."""

    def __init__(self, runner: Runner, compilers: CompilesAhead, tell: TellFacts) -> None:
        super().__init__(runner)
        self._compilers, self._tell = compilers, tell
        self._ready: dict[str, Mapping[str, Any]] = {}      # compiled: its static facts

    def put(self, configs: Sequence[Config]) -> None:
        super().put(configs)
        if configs:
            self._compilers.compile_ahead(configs)

    def take(self, incumbent: Incumbent | None) -> Iterator[tuple[Config, Outcome]]:
        found: dict[str, Mapping[str, Any]] = {}
        answers = self._compilers.compiled(0 if self._ready else WAIT_S)
        self.stopped = answers is None
        for config, answer in answers or ():
            key = config_key(config)
            refused = answer if isinstance(answer, Rejected) else spill_storm(answer) if incumbent else None
            if refused is not None:
                del self._asked[key]
                yield config, refused
            elif not isinstance(answer, Rejected):
                found[key] = answer
        if found:
            self._ready |= found
            self._tell(found)
        following = next((key for key in self._asked if key in self._ready), None)
        if following is None or self.stopped:
            return
        del self._ready[following]
        answered = list(self._runner.measure([self._asked[following]], incumbent))
        self.stopped = not answered
        if answered:
            del self._asked[following]
            yield answered[0]

    def clear(self) -> None:
        super().clear()
        self._compilers.forget()


def line_of(runner: Runner, tell: TellFacts) -> OneByOne:
    """The line that fits the runner; `tell` hears the static facts of what compiled but is not timed yet."""
    return Ahead(runner, runner, tell) if runner.ahead > 1 and isinstance(runner, CompilesAhead) else OneByOne(runner)
