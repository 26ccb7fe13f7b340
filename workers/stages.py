"""The stages of the work on a profile, each in a process of its own within RIDGEPOINT_STAGE_MEMORY_MB and RIDGEPOINT_STAGE_SECONDS.

What exceeds a limit is said on the profile (a failed ingest in its error, a topic in its document, other parts as a note of the
integrity report), and everything else stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from django.conf import settings

from profiles.advice.services import are_decisions_open, decisions_follow
from profiles.families.follow_services import families_follow, pairs_refresh
from profiles.models import Profile
from profiles.topics.services import topic_refuse, topics_make
from profiles.upload.services import part_note, profile_fail
from profiles.upload.waiting_services import follow_end, follow_put_off
from tuner.gate.builds.services import build_of_profile
from workers import bounded_process
from workers.core.periodic import run_periodically
from workers.leases import BEAT_EVERY_S

log = logging.getLogger(__name__)
_FOLLOWED = "everything"
_SMALL_SHARE = 8                # of the limit: a profile whose reading took less is small
_BYTES_A_S = 1_000_000          # of the upload: the time that is given beside RIDGEPOINT_STAGE_SECONDS
HINT = "Record fewer steps, or raise RIDGEPOINT_STAGE_MEMORY_MB of the ingest worker."
HINT_OF_TIME = "Record fewer steps, threads or streams, or raise RIDGEPOINT_STAGE_SECONDS of the ingest worker."


def ingest(profile_id: int, worker: str, read: Callable[[], None]) -> str:
    """Read an upload and do what follows on it; return why the process that read it ended early, "" where it did not.

    A row that it could not end for want of memory ends as failed. One whose process was killed otherwise stays: it is taken up
    again as after a worker's death.
    """
    ending = _run(profile_id, partial(_read_and_follow, profile_id, read))
    log.info("ingest %s: %.0f MB at most", profile_id, ending.peak_bytes / 1e6)
    if ending.why and not ending.parts:
        if ending.why.startswith(("needs", bounded_process.TOOK_LONGER)):
            profile_fail(profile_id, worker, what=f"reading it {ending.why}", hint=_hint(ending.why))
        return ending.why
    follow(profile_id, again=ending.parts[-1:] != (_FOLLOWED,))
    return ""


def _run(profile_id: int, work: bounded_process.Work) -> bounded_process.Ending:
    """Run a stage of the work on a profile within what its upload may take; every part that it says has that time."""
    size_bytes = Profile.objects.filter(pk=profile_id).values_list("upload_bytes", flat=True).first() or 0
    seconds = settings.STAGE_SECONDS + size_bytes / _BYTES_A_S if settings.STAGE_SECONDS else 0.0
    return bounded_process.run(work, settings.STAGE_MEMORY_MB, seconds)


@contextmanager
def _put_off(profile_id: int) -> Iterator[None]:
    """Let nobody else take up meanwhile what follows on the profile."""
    with run_periodically(BEAT_EVERY_S, partial(follow_put_off, profile_id), f"what follows on profile {profile_id}"):
        yield


def _run_following(profile_id: int, work: bounded_process.Work) -> bounded_process.Ending:
    """Run a stage of what follows on the reading."""
    follow_put_off(profile_id)

    def run(say: bounded_process.Say) -> None:
        with _put_off(profile_id):
            work(say)

    return _run(profile_id, run)


def _hint(why: str) -> str:
    return HINT_OF_TIME if why.startswith(bounded_process.TOOK_LONGER) else HINT


def _read_and_follow(profile_id: int, read: Callable[[], None], say: bounded_process.Say) -> None:
    """Read the upload; of a small one, also do what follows: another process takes longer than the work in it."""
    read()
    if bounded_process.peak_bytes() < settings.STAGE_MEMORY_MB * 1_000_000 // _SMALL_SHARE:
        say("what follows")
        with _put_off(profile_id):
            families_follow(profile_id)
            topics_make(profile_id)
        say(_FOLLOWED)


def follow(profile_id: int, again: bool = True) -> None:
    """Do what follows on a ready profile: families, shapes, topics, advice, its build.

    Without `again` the first three are made already. A worker that is killed before the end is followed by another (workers.sweep).
    """
    if again:
        _note(profile_id, "Shapes and families of its kernels", lambda say: families_follow(profile_id))
        analyse(profile_id)
    if are_decisions_open():
        _note(profile_id, "Advice that was taken up", lambda say: decisions_follow(profile_id))
    build_of_profile(profile_id)
    follow_end(profile_id)


def analyse(profile_id: int) -> None:
    """Make every missing topic; one that exceeds the limit is refused, the others are made."""
    tried: set[str] = set()
    refused: set[str] = set()
    while True:
        ending = _run_following(profile_id, partial(topics_make, profile_id, skip=frozenset(refused)))
        log.info("topics of profile %s: %.0f MB at most", profile_id, ending.peak_bytes / 1e6)
        if not ending.why:
            return
        if not ending.parts or ending.parts[-1] in refused:          # it ended outside any topic: there is none to leave out
            log.error("topics of profile %s: their process %s", profile_id, ending.why)
            return
        name = ending.parts[-1]
        if ending.parts[0] == name or name in tried:        # else what was made before it held memory as well: once more, alone
            refused.add(name)
            _run_following(profile_id, partial(_refuse, profile_id, name, ending.why))
        tried.add(name)


def compare_builds() -> None:
    """Compare anew what the newest builds changed."""
    ending = bounded_process.run(lambda say: pairs_refresh(), settings.STAGE_MEMORY_MB, settings.STAGE_SECONDS)
    if ending.why:
        log.error("comparing the newest builds %s", ending.why)


def _refuse(profile_id: int, name: str, why: str, say: bounded_process.Say) -> None:
    topic_refuse(profile_id, name, f"This analysis {why}. {_hint(why)}")


def _note(profile_id: int, part: str, work: bounded_process.Work) -> None:
    ending = _run_following(profile_id, work)
    log.info("%s of profile %s: %.0f MB at most", part, profile_id, ending.peak_bytes / 1e6)
    if Profile.objects.filter(pk=profile_id, status=Profile.Status.READY).exists():
        part_note(profile_id, part, f"the work on it {ending.why}. {_hint(ending.why)}" if ending.why else "")
