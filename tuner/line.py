"""The configurations between the strategy and the GPU: asked, perhaps compiling or compiled, not yet known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tuner.bench.runner import Compiled, CompilesAhead, Incumbent, Runner
from tuner.prune import spill_storm
from tuner.trial import Config, Measured, Outcome, Rejected, config_key

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
    """Of a runner with compilers: whatever compiled first goes to the GPU, and the others compile meanwhile.

    The GPU works in a thread of its own: while it measures, the loop stores the last trial and asks the strategy, which may
    think as long as a measurement takes.
    """

    def __init__(self, runner: Runner, compilers: CompilesAhead, tell: TellFacts) -> None:
        super().__init__(runner)
        self._compilers, self._tell = compilers, tell
        self._ready: dict[str, Mapping[str, Any]] = {}      # compiled: its static facts
        self._gpu = ThreadPoolExecutor(1, thread_name_prefix="gpu")
        self._measuring: Future[list[tuple[Config, Outcome]]] | None = None

    def put(self, configs: Sequence[Config]) -> None:
        super().put(configs)
        if configs:
            self._compilers.compile_ahead(configs)

    def take(self, incumbent: Incumbent | None) -> Iterator[tuple[Config, Outcome]]:
        answers = self._compilers.compiled(0 if self._ready or self._measuring else WAIT_S)
        self.stopped = answers is None
        yield from self._sorted(answers or ())
        measured = self._measuring.result() if self._measuring is not None else None
        self._measuring = None
        self.stopped = self.stopped or measured == []
        if not self.stopped:                                # the next one, before anybody hears of this one
            runs = any(isinstance(outcome, Measured) for _, outcome in measured or ())
            yield from self._begin(incumbent, something_runs=runs or incumbent is not None)
        for config, outcome in measured or ():
            del self._asked[config_key(config)]
            yield config, outcome

    def _sorted(self, answers: Sequence[Compiled]) -> Iterator[tuple[Config, Outcome]]:
        """What cannot run is known now; the strategy hears the facts of the others."""
        found: dict[str, Mapping[str, Any]] = {}
        for config, answer in answers:
            key = config_key(config)
            if isinstance(answer, Rejected):
                del self._asked[key]
                yield config, answer
            else:
                found[key] = answer
        if found:
            self._ready |= found
            self._tell(found)

    def _begin(self, incumbent: Incumbent | None, something_runs: bool) -> Iterator[tuple[Config, Outcome]]:
        """The first that is ready goes to the GPU; those before it that spill too much are not worth it once something runs."""
        for key in [key for key in self._asked if key in self._ready]:
            facts = self._ready.pop(key)
            refused = spill_storm(facts) if something_runs else None
            if refused is None:
                self._measuring = self._gpu.submit(self._measure, self._asked[key], incumbent)
                return
            yield self._asked.pop(key), refused

    def _measure(self, config: Config, incumbent: Incumbent | None) -> list[tuple[Config, Outcome]]:
        return list(self._runner.measure([config], incumbent))

    def clear(self) -> None:
        """What is on the GPU is finished and forgotten: whoever comes next has it alone."""
        super().clear()
        self._compilers.forget()
        self._gpu.shutdown(wait=True)


def line_of(runner: Runner, tell: TellFacts) -> OneByOne:
    """The line that fits the runner; `tell` hears the static facts of what compiled but is not timed yet."""
    return Ahead(runner, runner, tell) if runner.ahead > 1 and isinstance(runner, CompilesAhead) else OneByOne(runner)
