"""What may be done to candidates: submit, cancel, review; and an owner's permission to run those of an operator.

What a worker writes of a candidate: claimed, its stages, its verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.candidates import diffs, selectors
from tuner.candidates.verdicts import Judgement, Verdict
from tuner.models import Candidate, CandidatePermit
from tuner.texts import in_order
from tuner.tuning.operators import Operator, find
from tuner.tuning.trial import cleaned
from workers import jobs

MOST_TEXT_BYTES = diffs.MOST_BYTES
MOST_NOTE, MOST_REVIEW_NOTE, MOST_PARAMS, MOST_VALUE = 4000, 1000, 16, 60
PER_DAY, SECONDS = (1, 10_000), (30, 1800)          # bounds of a permit
Status, Review = Candidate.Status, Candidate.Review
ACCEPTABLE = (Verdict.FASTER, Verdict.SAME, Verdict.SLOWER, Verdict.AMBIGUOUS)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}\Z")


@dataclass(frozen=True)
class Submitter:
    """A person, and the API token that spoke for them: its first characters and name; "" on the page."""

    person: Any
    token_key: str = ""
    token_name: str = ""


def candidate_create(by: Submitter, *, operator: str, text: str, shape: Mapping[str, Any] | None = None, dtype: str = "",
                     config: Mapping[str, Any] | None = None, note: str = "", parent: Candidate | None = None,
                     gpu: str = "") -> Candidate:
    """Store a candidate and wake a worker for it. Raises Refused.

    text     a whole Python file, or a unified diff against a file of the operator's
    shape    sizes by dimension; without any the parent's, else the operator's first preset
    """
    definition = _operator(operator)
    type_ = dtype or (parent.dtype if parent else definition.dtypes[0])
    sizes = dict(shape or (parent.shape if parent else definition.presets[0]))
    for field, problem in definition.problems(sizes, type_).items():
        raise Refused({field: problem})
    if parent is not None and parent.operator != definition.name:
        raise Refused({"parent": f"candidate {parent.pk} is one of {parent.operator}"})
    whole, diff, base = read_text(definition.name, text)
    if why := diffs.why_no_python(whole):
        raise Refused({"text": f"{'with the diff applied it' if diff else 'it'} is no Python file: {why}"})
    row = Candidate(
        operator=definition.name, dtype=type_, shape=in_order(definition.name, sizes), text=whole, diff=diff,
        base_path=base.path if base else "", base_hash=base.hash if base else "", config=read_config(config),
        wanted_gpu=cleaned(gpu.strip())[:120], note=cleaned(note).strip()[:MOST_NOTE], parent=parent,
        series=(parent.series or parent) if parent else None, owner=by.person, token_key=by.token_key[:40],
        token_name=by.token_name[:80])
    with transaction.atomic():
        row.seconds = _take_of_day(definition.name, by)
        row.save()
        for queue in selectors.first_queues(row):
            jobs.enqueue_on_commit(queue, "candidate", row.pk)
    candidate_publish(row)
    return row


def _operator(name: str) -> Operator:
    definition = find(name)
    if definition is None or name not in selectors.known_operators():
        why = f"{name} runs on several GPUs, candidates on one: " if definition is not None and definition.on_several_gpus else ""
        raise Refused({"operator": f"{why}choose one of {', '.join(selectors.known_operators())}"})
    return definition


def _take_of_day(operator: str, by: Submitter) -> int:
    """Return the seconds that one more candidate may take. Raises Refused. Submitters of an operator wait for each other."""
    permit = CandidatePermit.objects.select_for_update().filter(operator=operator).first()
    if permit is None:
        raise Refused({"operator": f"candidates of {operator} may not run in this project: an owner allows them on its page of "
                                   "candidates"}, status=403)
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    mine = Candidate.objects.filter(operator=operator, created__gte=today)
    mine = mine.filter(token_key=by.token_key[:40]) if by.token_key else mine.filter(token_key="", owner=by.person)
    if (count := mine.count()) >= permit.per_day:
        raise Refused({"operator": f"{count} of the {permit.per_day} candidates of {operator} that may be submitted in a day "
                                   "are taken; the day begins at 00:00 UTC"}, status=403)
    return permit.seconds


def read_text(operator: str, text: str) -> tuple[str, str, diffs.SourceFile | None]:
    """Return the whole file, the diff it was sent as ("" where it was whole), and the operator's file beside it.

    Raises Refused, which names the hunk that does not fit.
    """
    if not text.strip():
        raise Refused({"text": "a whole Python file, or a unified diff against the operator's own"})
    size = len(text.encode(errors="replace"))
    if size > MOST_TEXT_BYTES:
        raise Refused({"text": f"{size:,} bytes; at most {MOST_TEXT_BYTES:,}"})
    if "\0" in text or "\ufffd" in text:
        raise Refused({"text": "it is no text in UTF-8: a whole Python file, or a unified diff against the operator's own"})
    text = cleaned(text)
    files = selectors.files_of(operator)
    if not diffs.is_diff(text):
        return text, "", files[0] if files else None
    if not files:
        raise Refused({"text": f"the source of {operator} is not on this server: send the whole file in place of a diff"})
    try:
        base = _base_of(files, diffs.file_of(text))
        return diffs.apply(base.text, text), text, base
    except Refused as refused:
        raise Refused({"text": f"the diff is not applied: {refused.what}"}) from refused


def _base_of(files: tuple[diffs.SourceFile, ...], named: str) -> diffs.SourceFile:
    if not named:
        return files[0]
    base = next((file for file in files if file.path == named or file.path.endswith(f"/{named}")), None)
    if base is None:
        raise Refused(f"it changes {named[:100]}; the operator's files are {', '.join(file.path for file in files)}")
    return base


def read_config(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the parameters of a launch; None where the operator's default holds. Raises Refused."""
    if not given:
        return None
    if len(given) > MOST_PARAMS:
        raise Refused({"config": f"at most {MOST_PARAMS} parameters"})
    for name, value in given.items():
        if not _NAME.match(str(name)):
            raise Refused({"config": f"{str(name)[:40]!r} is no name of a parameter"})
        whole = isinstance(value, int) and abs(value) < 2**31
        if not (whole or isinstance(value, bool) or (isinstance(value, float) and abs(value) < 1e300)
                or (isinstance(value, str) and len(value) <= MOST_VALUE)):
            raise Refused({"config": f"{name}: a number, a flag or a short text"})
    return {str(name): cleaned(value) for name, value in given.items()}


def candidate_cancel(candidate: Candidate) -> bool:
    """Cancel a candidate; a running one ends within a second. False where it had ended already."""
    done = Candidate.leases.stop(candidate.pk, Status.CANCELLED, step="")
    if done:
        candidate_publish(Candidate.objects.get(pk=candidate.pk))
    return done


def candidate_review(candidate: Candidate, decision: str, note: str, by: Submitter) -> Candidate:
    """Write a person's decision on what was measured; it can be changed. The audit log has each. Raises Refused.

    A token of the person who submitted it by a token decides nothing: a program does not review its own work.
    """
    if decision not in (Review.ACCEPTED, Review.DECLINED):
        raise Refused({"decision": f"{Review.ACCEPTED} or {Review.DECLINED}"})
    with transaction.atomic():
        row = Candidate.objects.select_for_update(of=("self",)).get(pk=candidate.pk)
        if row.status != Status.DONE:
            raise Refused({"decision": f"it is {row.status}: nothing was measured that could be reviewed"})
        if decision == Review.ACCEPTED and row.verdict not in ACCEPTABLE:
            raise Refused({"decision": f"it is {row.verdict}: {row.reason}"[:300]})
        if by.token_key and row.token_key and row.owner_id == getattr(by.person, "pk", None):
            raise Refused({"decision": "a token of the person whose token submitted it reviews nothing: do it on the page"})
        row.review, row.review_note = decision, cleaned(note).strip()[:MOST_REVIEW_NOTE]
        row.reviewed_by, row.reviewed = by.person, timezone.now()
        row.save(update_fields=["review", "review_note", "reviewed_by", "reviewed"])
    candidate_publish(row)
    return row


def permit_set(operator: str, allowed: bool, *, per_day: Any = None, seconds: Any = None, by: Any) -> CandidatePermit | None:
    """Let candidates of an operator run in this project, or no longer; the audit log has it. Raises Refused."""
    name = operator if not allowed else _operator(operator).name
    row = CandidatePermit.objects.filter(operator=name).first()
    if not allowed:
        if row is not None:
            row.delete()
        return None
    row = row or CandidatePermit(operator=name)
    row.per_day = _bounded("per_day", per_day, row.per_day, PER_DAY)
    row.seconds = _bounded("seconds", seconds, row.seconds, SECONDS)
    row.by = by
    row.save()
    return row


def _bounded(field: str, given: Any, otherwise: int, bounds: tuple[int, int]) -> int:
    text = str(given).strip() if given is not None else ""
    if not text:
        return otherwise
    low, high = bounds
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and low <= int(text) <= high):
        raise Refused({field: f"a whole number from {low:,} to {high:,}"})
    return int(text)


def candidate_publish(candidate: Candidate) -> None:
    """Tell the pages that watch it."""
    jobs.publish(f"candidate.{candidate.pk}", "status", {"id": candidate.pk, "status": candidate.status, "step": candidate.step})


Stage = Candidate.Stage
MOST_REASON = 600


def candidate_claim(candidate_id: int, worker: str) -> Candidate | None:
    """Return the row for `worker`, or None where it is not free."""
    if not Candidate.leases.claim(candidate_id, worker, started=timezone.now(), error=None):
        return None
    candidate = Candidate.objects.get(pk=candidate_id)
    candidate_publish(candidate)
    return candidate


def candidate_step(candidate: Candidate, worker: str, step: str, **fields: Any) -> None:
    """Store and tell what is done now."""
    step = cleaned(step)[:60]
    if Candidate.leases.write(candidate.pk, worker, step=step, **fields):
        jobs.publish(f"candidate.{candidate.pk}", "progress", {"id": candidate.pk, "step": step})


def candidate_wait(candidate: Candidate, worker: str, answer: Mapping[str, Any]) -> bool:
    """Hand a compiled candidate on to the workers with a GPU."""
    Candidate.leases.write(candidate.pk, worker, stage=Stage.MEASURE, step="", answer=dict(answer))
    handed = bool(Candidate.leases.hand_back(worker, candidate.pk))
    if handed:
        candidate_publish(Candidate.objects.get(pk=candidate.pk))
    return handed


def candidate_done(candidate: Candidate, worker: str, judged: Judgement, answer: Mapping[str, Any], **facts: Any) -> bool:
    """End a candidate with its verdict. FAILED is one: the file does not run."""
    document = {**answer, "rows": [dict(row) for row in judged.rows], "against": judged.against}
    return _end(candidate, worker, Status.DONE, verdict=judged.verdict.value, reason=cleaned(judged.reason)[:MOST_REASON],
                answer=document, **facts)


def candidate_fail(candidate: Candidate, worker: str, where: str, what: str, hint: str = "", **facts: Any) -> bool:
    """End a candidate that could not be judged, through no fault of its own."""
    error = {"where": where, "what": cleaned(what)[:MOST_REASON], "hint": hint}
    return _end(candidate, worker, Status.FAILED, error=error, **facts)


def _end(candidate: Candidate, worker: str, status: str, **fields: Any) -> bool:
    ended = Candidate.leases.end(candidate.pk, worker, status, step="", **fields)
    if ended:
        row = Candidate.objects.get(pk=candidate.pk)
        candidate_publish(row)
        jobs.publish(jobs.HOME, "candidate", {"id": row.pk, "status": row.status})
    return ended
