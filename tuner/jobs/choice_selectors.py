"""Jobs to compare, to choose from: searched and bounded, the likeliest first."""

from __future__ import annotations

from django.db.models import Case, Q, TextField, When
from django.db.models.functions import Cast

from profiles.base.answers import Choice
from profiles.base.words import pairs_text
from tuner import texts
from tuner.models import TuneJob

LISTED = 100             # options of the form, which works without a script
FOUND = 30               # answers to a search


def job_choices(find: str = "", beside: str = "", limit: int = FOUND) -> list[Choice]:
    """Return jobs that have every word of `find`, those of the operator of the job `beside` first, then the newest."""
    jobs = TuneJob.objects.annotate(shape_text=Cast("shape", TextField()), id_text=Cast("pk", TextField())).order_by("-id")
    for word in find[:200].split()[:6]:
        anywhere = Q(id_text=word)
        for name in ("operator", "dtype", "strategy", "gpu", "device", "status", "shape_text"):
            anywhere |= Q(**{f"{name}__icontains": word})
        jobs = jobs.filter(anywhere)
    other = TuneJob.objects.filter(pk=int(beside)).first() if beside.isdecimal() and len(beside) < 12 else None
    if other is not None:
        same = Case(When(operator=other.operator, shape=other.shape, then=2), When(operator=other.operator, then=1), default=0)
        jobs = jobs.exclude(pk=other.pk).annotate(same=same).order_by("-same", "-id")
    return [job_choice(job) for job in jobs[:limit]]


def job_choice(job: TuneJob) -> Choice:
    """Return a job as a line of a list."""
    shape = pairs_text(texts.in_order(job.operator, job.shape))
    note = [job.strategy, job.gpu or job.device, *(["space edited"] if job.space else []), job.status, f"{job.created:%Y-%m-%d}"]
    return Choice(str(job.pk), f"{job.pk} · {job.operator} {shape}", " · ".join(note))
