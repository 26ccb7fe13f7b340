"""Which runs stand on the two sides of a gate: the build's own, and of each kernel what they are compared with.

Where both builds were measured in turn in the same jobs (interleaved), those runs alone are compared: drift of the machine met
both alike. Else the gate's runs meet the stored baseline. Runs of one environment only, ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from tuner.clocks.wish import says_locked
from tuner.gate.baselines.selectors import MOST_RUNS, Baseline, Env, environment_counts, environment_of, load_baselines
from tuner.gate.builds.selectors import ENVIRONMENT, Position, branch_line, position
from tuner.gate.suites.records import expected_kernels, missing_shards, shard_of, shards_note
from tuner.gate.suites.upload_services import gpu_spelling
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Suite, SuiteJob, SuiteKernel

# Kernels that the baseline has and a build has not: gone, or named otherwise. They are no reason to pass.

MOST_GATES = 20             # earlier gates of the suite that are looked through for the last one before the build


def gone_kernels(gate: Gate, env: Env, present: Sequence[SuiteKernel], baselines: Iterable[Baseline]) -> list[SuiteKernel]:
    """Return seen kernels without a run of the build that builds have which its other kernels are compared with, or that the gate
    before called gone, where nobody accepted that. Declared kernels are compared in any case. Where no kernel has a baseline, what
    the build before had.
    """
    if gate.suite.kind == Suite.Kind.OPERATORS:
        return []
    builds = {build.pk: build for baseline in baselines for build in baseline.builds} or _build_before(gate, env)
    had: dict[int, Position | None] = {}
    rows = KernelRun.objects.filter(kernel__suite=gate.suite, kernel__enabled=True, kernel__declared=False, build__in=builds,
                                    rejected="", **env.where()).exclude(kernel__in=present)
    for kernel, build in rows.order_by().values_list("kernel", "build").distinct():
        had[kernel] = max(filter(None, (had.get(kernel), position(builds[build]))))
    for kernel in _said_before(gate, env):
        had.setdefault(kernel, None)
    for present_kernel in present:
        had.pop(present_kernel.pk, None)
    accepted = _accepted(gate, had)
    left = [kernel for kernel, newest in had.items()
            if kernel not in accepted or (newest is not None and accepted[kernel] < newest)]
    return list(SuiteKernel.objects.filter(pk__in=left, enabled=True).select_related("suite"))


def _build_before(gate: Gate, env: Env) -> dict[int, Build]:
    """The newest build before of the gate's line or the main one: where none of a build's kernels is known, all were renamed."""
    lines = {"", branch_line(gate.build)}
    ran = KernelRun.objects.filter(kernel__suite=gate.suite, rejected="", build__at__lt=gate.build.at, **env.where())
    newest = Build.objects.filter(pk__in=ran.order_by().values("build")).exclude(pk=gate.build_id).order_by("-at", "-pk")
    return {build.pk: build for build in [candidate for candidate in newest[:MOST_GATES] if branch_line(candidate) in lines][:1]}


def _said_before(gate: Gate, env: Env) -> list[int]:
    """Kernels that the last gate before the build called gone; of its own line or the main one."""
    lines = {"", branch_line(gate.build)}
    earlier = Gate.objects.filter(suite=gate.suite, status=Gate.Status.DONE, build__at__lt=gate.build.at, **env.where())
    earlier = earlier.exclude(pk=gate.pk).exclude(allow_gone=True).select_related("build")
    for last in earlier.order_by("-build__at", "-build_id", "-pk")[:MOST_GATES]:
        if branch_line(last.build) in lines:
            rows = GateKernel.objects.filter(gate=last, facts__gone=True).order_by()
            return list(rows.values_list("kernel", flat=True))
    return []


def _accepted(gate: Gate, kernels: Iterable[int]) -> dict[int, Position]:
    """Kernel -> the newest build, up to this one, from which on somebody accepted that it is gone."""
    positions: dict[int, Position] = {}
    changes = BaselineChange.objects.filter(suite=gate.suite, action=BaselineChange.Action.GONE, kernel__in=list(kernels))
    for change in changes.select_related("build"):
        build: Build | None = change.build
        if build is not None and change.kernel_id is not None and position(build) <= position(gate.build):
            positions[change.kernel_id] = max(positions.get(change.kernel_id, position(build)), position(build))
    return positions


MOST_NAMED = 20                 # kernels in a note
LEAST_INTERLEAVED = 2           # runs of each build, below which the interleaved ones are not worth the stored baseline
STORED, FIRST, AGAIN = "stored", "first", "again"        # compared with stored runs; in turn in the first round; in a re-run


@dataclass(frozen=True)
class KernelComparison:
    """One kernel: what is judged against what."""

    kernel: SuiteKernel
    baseline: Baseline                      # as stored, or as measured in turn with the candidate
    candidate: list[KernelRun]
    stage: str = STORED
    rejected: list[str] = field(default_factory=list)            # runs of the candidate that gave no samples, and why
    gone: bool = False                      # the baseline has it, and this build has no line of it
    absent: str = ""                        # some of the build's processes have no line of it: which, in words

    @property
    def confirmed(self) -> bool:
        """Whether both sides were measured in turn, in the same jobs."""
        return self.stage != STORED


@dataclass(frozen=True)
class Sides:
    """Of a whole gate. `problem`: why nothing can be compared."""

    env: Env | None
    kernels: list[KernelComparison]
    problem: str = ""
    notes: list[str] = field(default_factory=list)


def load_sides(gate: Gate) -> Sides:
    """Return what is compared with what in a gate, from rows; a fixed number of queries."""
    ours = candidate_runs(gate)
    env, problem = _environment(gate, ours)
    kernels = _kernels(gate, ours)
    if env is None:
        rejected = _rejected_by_kernel(ours)
        return Sides(None, [KernelComparison(kernel, Baseline(kernel, "rolling"), [],
                                             rejected=rejected[kernel.pk]) for kernel in kernels],
                     problem)
    how = {timing for row in ours if not row.rejected and (timing := row.environment.get("timing"))}
    stored = {pk: _without_other_timings(baseline, how) for pk, baseline in load_baselines(kernels, env, gate.build, gate.against,
                                                                                           without=gate).items()}
    rejected, timed = _rejected_by_kernel(ours), defaultdict(list)
    elsewhere: Counter[str] = Counter()
    for row in ours:
        if row.rejected:
            continue
        if environment_of(row) == env:
            timed[row.kernel_id].append(row)
        else:
            elsewhere[environment_of(row).text] += 1
    notes = [f"{number} of its kernel runs were taken on {where}: they are not mixed in" for where, number in elsewhere.items()]
    turns = _interleaved_runs(gate, env)
    compared: list[KernelComparison] = []
    other_code: set[str] = set()
    for kernel in kernels:
        comparison, other = _compare_kernel(kernel, stored[kernel.pk], timed[kernel.pk], turns[kernel.pk], rejected[kernel.pk],
                                            gate.build_id)
        compared.append(comparison)
        other_code.add(other)
    notes += [f"{name} was measured again, but with another kernel source than its stored runs: those stand as the baseline"
              for name in sorted(other_code - {""})]
    absent = absent_lines(ours) if gate.suite.kind == Suite.Kind.UPLOADED else {}
    compared = [replace(comparison, absent=absent.get(comparison.kernel.pk, "")) for comparison in compared]
    gone = gone_kernels(gate, env, kernels, stored.values())
    names = ", ".join(kernel.key for kernel in gone[:MOST_NAMED]) + (" …" if len(gone) > MOST_NAMED else "")
    if gone and gate.allow_gone:
        notes.append(f"gone, as --allow-gone says: {names}")
    elif gone:
        gone_baselines = load_baselines(gone, env, gate.build, gate.against, without=gate)
        compared += [KernelComparison(kernel, gone_baselines[kernel.pk], [], gone=True) for kernel in gone]
    return Sides(env, compared, "", notes + _failed_partner_notes(gate))


def candidate_runs(gate: Gate) -> list[KernelRun]:
    """Return runs of the gate's build, newest first: of its own jobs, or all that were uploaded."""
    rows = KernelRun.objects.filter(kernel__suite=gate.suite_id, build=gate.build_id)
    if gate.suite.kind != Suite.Kind.UPLOADED:
        return list(rows.filter(job__gate=gate).order_by("-created", "-id"))
    if environment_of(gate) != Env():                       # the runs that came with the request said where they were taken
        rows = rows.filter(**environment_of(gate).where())
    ids: dict[int, list[int]] = defaultdict(list)
    for kernel, pk in rows.order_by("-created", "-id").values_list("kernel_id", "pk").iterator():
        ids[kernel].append(pk)
    chosen = {pk for of in ids.values() for pk in spread_over(of, MOST_RUNS)}
    newest = rows.order_by("-created", "-id")
    return list(newest if len(chosen) == sum(map(len, ids.values())) else newest.filter(pk__in=chosen))


def spread_over(of: Sequence[int], most: int) -> list[int]:
    """Return at most so many, evenly from first to last: who sends runs until the newest are fast has sent the others too."""
    return list(of) if len(of) <= most else [of[place * (len(of) - 1) // (most - 1)] for place in range(most)]


def _rejected_by_kernel(rows: Iterable[KernelRun]) -> dict[int, list[str]]:
    reasons_by_id: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        if row.rejected:
            reasons_by_id[row.kernel_id].append(f"{row.run}: {row.rejected}")
    return reasons_by_id


def _environment(gate: Gate, rows: Sequence[KernelRun]) -> tuple[Env | None, str]:
    """The one environment that the build was measured in; None with the reason where it cannot be said."""
    if mixed := gate.report.get("mixed"):           # of runs that came along: nobody can say which of them was meant
        return None, _mixed_problem(gate, mixed)
    timed = [row for row in rows if not row.rejected]
    if not timed:
        why = next((row.rejected for row in rows), "")
        return None, f"no run of {gate.build.name} gave samples{f': {why}' if why else ''}"
    first = min((row.job_id or 0 for row in timed), default=0)     # a re-run that landed elsewhere is left out, not mixed in
    found = Counter(environment_of(row) for row in timed if (row.job_id or 0) == first or gate.suite.kind == Suite.Kind.UPLOADED)
    fields = {name: str(gate.environment[name]) for name in ENVIRONMENT if gate.environment.get(name)}
    fits = [env for env in found if all(_is_spelled(name, value, getattr(env, name)) for name, value in fields.items())]
    if not fits:
        text = ", ".join(f"{name} {value}" for name, value in fields.items())
        return None, f"asked for {text}, but the runs of {gate.build.name} were taken on " \
                     f"{'; '.join(env.text for env in found)}"
    if len(fits) > 1:
        return None, _mixed_problem(gate, sorted(env.text for env in fits))
    return fits[0], ""


def _is_spelled(name: str, asked: str, there: str) -> bool:
    return (gpu_spelling(asked, [there]) if name == "gpu" else asked).casefold() == there.casefold()


def _without_other_timings(stored: Baseline, how: Set[str]) -> Baseline:
    """Without runs that were timed by another policy, or under other clocks, than the candidate's (`how`).

    Where one side does not say how, it counts, unless the other's clocks were locked.
    """
    if len(how) > 1:
        return stored
    now = next(iter(how), "")

    def fits(run: KernelRun) -> bool:
        timing = run.environment.get("timing") or ""
        return timing == now if timing and now else says_locked(timing) == says_locked(now)

    runs, earlier = [run for run in stored.runs if fits(run)], [run for run in stored.earlier if fits(run)]
    if len(runs) == len(stored.runs):
        return replace(stored, earlier=earlier)
    held = {run.build_id for run in runs}
    reason = "" if runs else f"earlier builds were timed otherwise than now ({now or 'clocks not locked'})"
    return replace(stored, runs=runs, builds=[build for build in stored.builds if build.pk in held], reason=reason, earlier=earlier)


def _mixed_problem(gate: Gate, places: Sequence[str]) -> str:
    return f"the runs of {gate.build.name} were taken in {len(places)} environments, which are never mixed: {'; '.join(places)}. " \
           "Ask for one of them: by its GPU, toolkit or driver on the form, as \"environment\" in the API"


def _kernels(gate: Gate, rows: Sequence[KernelRun]) -> list[SuiteKernel]:
    """Those that the suite declares, and the seen ones that this build has runs of."""
    kernel_pks = {row.kernel_id for row in rows}
    return [kernel for kernel in gate.suite.kernels.filter(enabled=True)
            if kernel.declared or kernel.pk in kernel_pks]


def absent_lines(rows: Sequence[KernelRun]) -> dict[int, str]:
    """Return kernel -> which of the build's whole processes have no line of it; a process is whole that has most of the kernels."""
    of: dict[str, set[int]] = defaultdict(set)
    shards: dict[str, str] = {}
    for row in rows:
        of[row.run].add(row.kernel_id)
        shards[row.run] = shard_of(row.environment)
    kernels_by_shard = expected_kernels((shards[row.run], row.kernel_id) for row in rows)
    whole = {run: had for run, had in of.items() if 2 * len(had) > len(kernels_by_shard[shards[run]])}
    texts_by_kernel = {}
    for kernel in {row.kernel_id for row in rows}:
        processes = [run for run in whole if kernel in kernels_by_shard[shards[run]]]
        missing = sorted(run for run in processes if kernel not in whole[run])
        if missing:
            texts_by_kernel[kernel] = f"{len(missing)} of {len(processes)} processes have no line of it (the first: {missing[0]})"
    return texts_by_kernel


def shards_awaited(gate: Gate, rows: Sequence[KernelRun]) -> str:
    """Return which shards of an upload have not come yet, in words; "" where none is missing. `rows`: newest first."""
    if gate.suite.kind != Suite.Kind.UPLOADED:
        return ""
    return shards_note(*missing_shards(shard_of(row.environment) for row in rows))


# ---- measured in turn ----

def _failed_partner_notes(gate: Gate) -> list[str]:
    """Why the other build gave fewer runs than it was to give, in the jobs that measured it in turn."""
    rows = KernelRun.objects.filter(job__in=interleaved_jobs(gate)).exclude(build=gate.build_id).exclude(rejected="")
    first = rows.select_related("build").order_by("id").first()
    if first is None:
        return []
    return [f"{rows.count()} kernel runs of {first.build.name}, measured again in turn, gave no samples: {first.rejected}"]


def interleaved_jobs(gate: Gate) -> list[SuiteJob]:
    """Return jobs of the gate that measured another build in turn with its own."""
    return [job for job in gate.jobs.order_by("id") if len(job.builds) > 1]


def job_partner(job: SuiteJob, gate: Gate) -> str:
    """Return the name of the other build of an interleaved job."""
    return next((str(build["build"]) for build in job.builds if build["build"] != gate.build.name), "")


def _interleaved_runs(gate: Gate, env: Env) -> dict[int, dict[str, list[KernelRun]]]:
    """Kernel -> stage -> runs of both builds that interleaved jobs took here, newest first.

    Runs of a re-run stand apart from those of the first round: what made the re-run necessary is not looked at twice.
    """
    first = gate.jobs.order_by("id").values_list("id", flat=True).first()
    jobs = interleaved_jobs(gate)
    jobs = [job for job in jobs if job_partner(job, gate) == job_partner(jobs[-1], gate)]
    runs_by_kernel: dict[int, dict[str, list[KernelRun]]] = defaultdict(lambda: defaultdict(list))
    rows = KernelRun.objects.filter(job__in=jobs, rejected="", **env.where()).select_related("build")
    for row in rows.order_by("-created", "-id"):
        runs_by_kernel[row.kernel_id][FIRST if row.job_id == first else AGAIN].append(row)
    return runs_by_kernel


def _compare_kernel(kernel: SuiteKernel, stored: Baseline, timed: list[KernelRun], turns: Mapping[str, Sequence[KernelRun]],
              rejected: list[str], ours: int) -> tuple[KernelComparison, str]:
    """The interleaved runs of both sides where they are enough, else everything; and a build that was not the same code again."""
    for stage in (AGAIN, FIRST):
        candidate = [row for row in turns.get(stage, []) if row.build_id == ours]
        baseline = [row for row in turns.get(stage, []) if row.build_id != ours]
        if min(len(candidate), len(baseline)) < LEAST_INTERLEAVED:
            continue
        build: Build = baseline[0].build
        before = {row.source_hash for row in stored.runs if row.build_id == build.pk} - {""}
        now = {row.source_hash for row in baseline} - {""}
        if before and now and not before & now:
            return KernelComparison(kernel, stored, timed[:MOST_RUNS], rejected=rejected), build.name
        turn_baseline = Baseline(kernel, stored.mode, baseline[:MOST_RUNS], [build], stored.change, earlier=stored.earlier)
        return KernelComparison(kernel, turn_baseline, candidate[:MOST_RUNS], stage, rejected), ""
    card_runs, left_out = _on_the_baselines_cards(kernel, stored, timed)
    return KernelComparison(kernel, stored, card_runs[:MOST_RUNS], rejected=[*rejected, *left_out]), ""


def _on_the_baselines_cards(kernel: SuiteKernel, stored: Baseline, timed: list[KernelRun]) -> tuple[list[KernelRun], list[str]]:
    """Return the runs of cards that the baseline ran on, where those are enough, and lines about the others."""
    cards = {row.gpu_uuid for row in stored.runs}
    shared = [row for row in timed if row.gpu_uuid in cards]
    if "" in cards or len(shared) == len(timed) or len(shared) < kernel.suite.runs:
        return timed, []
    return shared, [f"{row.run}: on {row.gpu_uuid or 'a card that was not named'}, and the baseline has no run of that card"
                    for row in timed if row.gpu_uuid not in cards]


# ---- the same elsewhere ----

def nearest_measured_build(gate: Gate, env: Env) -> tuple[Env, Build] | None:
    """Return where else the suite has runs of an earlier build, and that build; the same GPU model first."""
    envs = [place["env"] for place in environment_counts(gate.suite)]
    nearest = sorted((other for other in envs if other != env), key=lambda one: (one.gpu != env.gpu, one.recorded != env.recorded))
    for there in nearest:
        earlier = KernelRun.objects.filter(kernel__suite=gate.suite, rejected="", build__at__lte=gate.build.at, **there.where())
        row = earlier.exclude(build=gate.build_id).select_related("build").order_by("-build__at", "-build_id").first()
        if row is not None:
            return there, row.build
    return None
