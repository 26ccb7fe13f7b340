"""What captures cost: steps timed before, while and after they were recorded; whole programs with a tool and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from profiles.analysis.core.sentences import plural, time_text
from profiles.base.answers import make_answer
from profiles.base.numbers import positive_number
from profiles.base.refused import Refused
from profiles.capture.command import program_digest
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.options import Options, ProgramOptions
from profiles.models import Capture, CaptureTarget

PHASES = {"first": "the first step", "before": "before", "warmup": "warm-up", "recording": "while recording",
          "between": "between cycles", "after": "after"}
LOOKED_AT = 20                  # captures of a program in which a measured one is looked for


@dataclass(frozen=True)
class Phase:
    """Steps of one phase. `times`: of a step without recording; None where none was timed."""

    name: str
    n: int
    median_ms: float
    min_ms: float
    max_ms: float
    times: float | None

    @property
    def text(self) -> str:
        return time_text(self.median_ms * 1e6)

    @property
    def spread(self) -> str:
        return f"{time_text(self.min_ms * 1e6)} to {time_text(self.max_ms * 1e6)}"


@dataclass(frozen=True)
class Cost:
    """What one capture cost. `ratio`: a step while recording over one without; None where that is unknown, for `why`.

    `apart`: no step while recording took as long as one without, or the other way round: the ratio is no chance of few steps.
    `plain_s`: the whole program without the tool, as capture `plain_of` measured it; None where none did on such a GPU.
    """

    phases: list[Phase]
    ratio: float | None
    why: str
    wall_s: float | None
    write_s: float | None
    kernels_ns: float | None            # what the profiled launches took by themselves
    launches: int
    apart: bool = False
    plain_s: float | None = None
    plain_of: int | None = None

    @property
    def program_ratio(self) -> float | None:
        return self.wall_s / self.plain_s if self.wall_s and self.plain_s else None

    @property
    def is_measured(self) -> bool:
        return self.ratio is not None or self.program_ratio is not None

    @property
    def says(self) -> str:
        """Return the cost in a few words, "" where nothing is known."""
        if self.ratio is not None:
            sentence = f"a step took {self.ratio:.2f} times as long while it recorded"
            return sentence if self.apart else f"{sentence}, within the spread of steps"
        if self.program_ratio is not None and self.wall_s is not None and self.plain_s is not None:
            return (f"the whole program took {self.program_ratio:.2f} times as long: {time_text(self.wall_s * 1e9)}, "
                    f"{time_text(self.plain_s * 1e9)} without")
        if self.wall_s is not None and self.kernels_ns:
            launches = plural(self.launches, "launch")
            return f"{time_text(self.wall_s * 1e9)} in all for {launches} of {time_text(self.kernels_ns)} together"
        return f"{time_text(self.wall_s * 1e9)} in all" if self.wall_s is not None else ""

    def as_json(self) -> CostJson:
        return make_answer(CostJson, self, steps={phase.name: make_answer(CaptureStepsJson, phase) for phase in self.phases})


class CaptureStepsJson(TypedDict):
    """Times of steps before, during or after recording."""

    n: int
    median_ms: float
    min_ms: float
    max_ms: float


class CostJson(TypedDict):
    """How much longer a step, or the program, took while it was captured; `plain_of`: what ran it without."""

    ratio: float | None
    apart: bool
    why: str
    wall_s: float | None
    plain_s: float | None
    plain_of: int | None
    program_ratio: float | None
    write_s: float | None
    kernels_ns: int | None
    launches: int
    steps: dict[str, CaptureStepsJson]


def cost(capture: Capture) -> Cost:
    """Return what a capture cost by the facts on its row."""
    facts: dict[str, Any] = capture.facts if isinstance(capture.facts, dict) else {}
    steps: Any = facts.get("steps")
    times = {name: _timed(timing) for name, timing in steps.items()} if isinstance(steps, dict) else {}
    times_by_phase = {name: times[name] for name in PHASES if times.get(name)}
    without = next((times_by_phase[name] for name in ("after", "before") if name in times_by_phase), None)
    plain = without["median_ms"] if without else None
    phases = [Phase(PHASES[name], int(timing["n"]), timing["median_ms"], timing["min_ms"], timing["max_ms"],
                    timing["median_ms"] / plain if plain else None) for name, timing in times_by_phase.items()]
    recorded = times_by_phase.get("recording")
    unknown = "no step was timed without recording" if recorded else "the program counts no steps"
    why = "" if recorded and plain else unknown
    apart = bool(recorded and without and (recorded["min_ms"] > without["max_ms"] or recorded["max_ms"] < without["min_ms"]))
    profile = capture.profile if capture.tool == "ncu" else None
    return Cost(phases, recorded["median_ms"] / plain if recorded and plain else None, why, positive_number(facts.get("wall_s")),
                positive_number(facts.get("write_s")), float(profile.gpu_time_ns) if profile and profile.gpu_time_ns else None,
                int(profile.launches or 0) if profile else 0, apart, *_plain(capture, facts))


def _plain(capture: Capture, facts: dict[str, Any]) -> tuple[float | None, int | None]:
    """Return the seconds of the program without the tool, and the capture that measured them: itself, else the newest before.

    Of the same program, as many processes and the same model of GPU; nothing where the program did not run to its end.
    """
    own = facts.get("plain")
    if isinstance(own, dict) and (took_s := positive_number(own.get("s"))) is not None:
        return took_s, capture.pk
    try:
        options = CAPTURE_TOOLS[capture.tool].options.parse(capture.options)
    except (KeyError, Refused):
        return None, None
    if not isinstance(options, ProgramOptions) or options.cut_short() or facts.get("whole") is not True:
        return None, None
    rows = Capture.objects.filter(target=capture.target_id, facts__plain__program=program_digest(options, capture.target.argv),
                                  facts__plain__has_key="s", facts__gpu=facts.get("gpu"), pk__lt=capture.pk)
    row = rows.order_by("-pk").values_list("pk", "facts__plain__s").first()
    return (positive_number(row[1]), row[0]) if row else (None, None)


def expected(options: Options, target: CaptureTarget) -> str:
    """Return what a capture would cost: as the newest measured one of this program and tool did; and the tool's known range."""
    slowdown = CAPTURE_TOOLS[options.TOOL].slowdown(options)
    rows = Capture.objects.filter(target=target, tool=options.TOOL, status=Capture.Status.DONE).select_related("profile")
    text, took = "", ""
    for row in rows.select_related("target").defer("log")[:LOOKED_AT]:
        row_cost = cost(row)
        if row_cost.is_measured:
            text = f"{row_cost.says} (measured, capture {row.pk})"
            break
        took = took or (f" (capture {row.pk}: {row_cost.says})" if row_cost.says else "")
    text = text or f"not measured with this program{took}"
    return f"{text}; {slowdown}" if slowdown else text


def _timed(said: Any) -> dict[str, float]:
    """Return a phase's numbers, {} where one is missing or wrong: the file that they came from stood beside a program's own."""
    timing = said if isinstance(said, dict) else {}
    numbers = {key: positive_number(timing.get(key)) for key in ("n", "median_ms", "min_ms", "max_ms")}
    return {key: value for key, value in numbers.items() if value is not None} if None not in numbers.values() else {}
