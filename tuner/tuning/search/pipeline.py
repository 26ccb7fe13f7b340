"""Configurations between strategy and GPU: asked, compiling or compiled, not yet measured."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tuner.tuning.measure.runner import Compiled, CompilingRunner, Incumbent, Runner
from tuner.tuning.trial import Config, Measured, Outcome, Reason, Rejected, config_key

WAIT_S = 0.1               # for compilers, before the loop looks again whether it should stop
TellFacts = Callable[[Mapping[str, Mapping[str, Any]]], None]


class SerialPipeline:
    """Measures what was asked in turn, for a runner that compiles what it measures."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._asked: dict[str, Config] = {}
        self.stopped = False                   # the runner was told to stop: what is in the line stays unknown
        self.is_starved = False                # the GPU has nothing to do: all that was asked for compiles

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def keys(self) -> set[str]:
        return set(self._asked)

    def put(self, configs: Sequence[Config]) -> None:
        self._asked |= {config_key(config): config for config in configs}

    def take(self, incumbent: Incumbent | None) -> Iterator[tuple[Config, Outcome]]:
        """Yield the outcomes that are known next, first asked first; nothing while none is known."""
        for config, outcome in self._runner.measure(list(self._asked.values()), incumbent):
            del self._asked[config_key(config)]
            yield config, outcome
        self.stopped = bool(self._asked)

    def clear(self) -> None:
        self._asked.clear()


class CompilingPipeline(SerialPipeline):
    """Gives the GPU whatever compiled first while compilers work on the others.

    The GPU works in a thread of its own: while it measures, the loop stores the last trial and asks the strategy, which may
    think as long as a measurement takes.
    """

    def __init__(self, runner: Runner, compilers: CompilingRunner, tell: TellFacts) -> None:
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
        answers = self._compilers.take_compiled(0 if self._ready or self._measuring else WAIT_S)
        self.stopped = answers is None
        yield from self._sort_answers(answers or ())
        measured = self._measuring.result() if self._measuring is not None else None
        self._measuring = None
        self.stopped = self.stopped or measured == []
        self.is_starved = not (answers or measured or self._ready)
        if not self.stopped:                                # the next one, before anybody hears of this one
            runs = any(isinstance(outcome, Measured) for _, outcome in measured or ())
            yield from self._start_next(incumbent, something_runs=runs or incumbent is not None)
        for config, outcome in measured or ():
            del self._asked[config_key(config)]
            yield config, outcome

    def _sort_answers(self, answers: Sequence[Compiled]) -> Iterator[tuple[Config, Outcome]]:
        """Yield what cannot run, keep what compiled and tell the strategy its facts."""
        compiled: dict[str, Mapping[str, Any]] = {}
        for config, answer in answers:
            key = config_key(config)
            if isinstance(answer, Rejected):
                del self._asked[key]
                yield config, answer
            else:
                compiled[key] = answer
        if compiled:
            self._ready |= compiled
            self._tell(compiled)

    def _start_next(self, incumbent: Incumbent | None, something_runs: bool) -> Iterator[tuple[Config, Outcome]]:
        """Put the first compiled configuration on the GPU; reject those before it that spill too much."""
        for key in [key for key in self._asked if key in self._ready]:
            facts = self._ready.pop(key)
            refused = reject_spills(facts) if something_runs else None
            if refused is None:
                self._measuring = self._gpu.submit(self._measure, self._asked[key], incumbent)
                return
            yield self._asked.pop(key), refused

    def _measure(self, config: Config, incumbent: Incumbent | None) -> list[tuple[Config, Outcome]]:
        return list(self._runner.measure([config], incumbent))

    def clear(self) -> None:
        """Wait for what is on the GPU and drop everything."""
        super().clear()
        self._compilers.forget()
        self._gpu.shutdown(wait=True)


def make_pipeline(runner: Runner, tell: TellFacts) -> SerialPipeline:
    """Return the pipeline that fits the runner; `tell` receives static facts of compiled configurations."""
    if runner.ahead > 1 and isinstance(runner, CompilingRunner):
        return CompilingPipeline(runner, runner, tell)
    return SerialPipeline(runner)


SPILL_STORM = 64       # 4-byte words per thread in local memory
REGISTERS = 255        # a thread has (CUDA C++ Programming Guide, technical specifications per compute capability)


def reject_spills(facts: Mapping[str, Any]) -> Rejected | None:
    """Return a rejection where too many registers spill for a measurement to be worth it.

    On the landscapes recorded on an H200 (11 shapes of 4 operators) no configuration that spills more than 64 words is
    within 1.5 times the best of its shape; those of up to 32 words come as near as 1.2 times. `tests/tuner/search/test_prune.py`
    counts it.
    """
    spills = facts.get("spills")
    if not isinstance(spills, int) or spills <= SPILL_STORM:
        return None
    return Rejected(Reason.SPILLS, f"spills {spills:,} words per thread to local memory, more than {SPILL_STORM}: not timed", facts)


def foretell_spills(values: int) -> Rejected | None:
    """Return a rejection of what would be one for its spills once it is compiled: each thread holds so many 4-byte values at once.

    Their compile is what takes longest: of rows of 10,000 columns and more 3.5 to 6.5 s each beside an H200, or longer than the
    search, and a few of them keep every compiler from the others: 7 s at 16,384 columns had 11 trials, at 8,192 columns 317.
    """
    if values - REGISTERS <= SPILL_STORM:
        return None
    return Rejected(Reason.SPILLS, f"each thread would hold {values:,} values in {REGISTERS} registers: more than {SPILL_STORM} "
                                   "words spill; not compiled")
