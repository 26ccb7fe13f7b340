"""Track events that carry Chrome's older phases (TrackEvent.legacy_event): complete, asynchronous, flows, begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profiles.ingest.core.pairs import BEGIN, END, MARK
from profiles.ingest.perfetto.messages import TrackEvent
from profiles.ingest.perfetto.sequence import Sequence
from profiles.ingest.trace import Track

if TYPE_CHECKING:
    from profiles.ingest.perfetto.events import Events

_ASYNC = {"b": BEGIN, "S": BEGIN, "e": END, "F": END, "n": MARK, "T": MARK, "p": MARK}
_STACK = 1 << 40                         # stacks of chains are numbered apart from those of tracks
_NAME, _NAME_IID = (TrackEvent.DESCRIPTOR.fields_by_name[field] for field in ("name", "name_iid"))
_MAX_CHAINS = 1 << 20
_IN, _OUT = (1, 3), (2, 3)               # LegacyEvent.flow_direction: in, out, both


class Legacy:
    """Rows of such events, by phase."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._chains: dict[Any, int] = {}                  # scope and id -> number of the stack
        self._drawn: dict[int, int] = {}                   # that -> track
        self._completes = 0

    def take(self, event: Any, fields: dict[Any, Any], sequence: Sequence, now: int, clock: int) -> None:
        legacy = event.legacy_event
        phase = chr(legacy.phase) if 0 < legacy.phase < 128 else ""
        if legacy.name_iid and not {_NAME, _NAME_IID} & set(fields):
            fields = {**fields, _NAME_IID: legacy.name_iid}
        track = self._track(event, legacy, sequence)
        if not phase:
            phase = {1: "B", 2: "E", 3: "I"}.get(event.type, "")
        if phase == "X":
            self._complete(fields, sequence, now, clock, track, max(0, min(legacy.duration_us, 2**52)) * 1000)
        elif phase in "BE" and phase:
            self._events.row(fields, sequence, now, clock, track, track, BEGIN if phase == "B" else END)
        elif phase in "iIR" and phase:
            self._events.row(fields, sequence, now, clock, track, track, MARK)
        elif phase in _ASYNC:
            self._async(fields, legacy, sequence, now, clock, phase)
        elif phase in "stf" and phase:
            self._events.flow(self._id(legacy, sequence), track, now, clock, phase == "f")
        else:
            self._events.integrity.drop(f"legacy event of phase {phase or legacy.phase}")
        if legacy.flow_direction in (*_IN, *_OUT) and legacy.bind_id:
            self._events.flow(legacy.bind_id, track, now, clock, False)

    def _complete(self, fields: dict[Any, Any], sequence: Sequence, now: int, clock: int, track: int, duration_ns: int) -> None:
        """A begin and an end on a stack of their own: no neighbour pairs with them."""
        self._completes += 1
        self._events.row(fields, sequence, now, clock, 2 * _STACK + self._completes, track, BEGIN)
        self._events.end(2 * _STACK + self._completes, track, now + duration_ns, clock)

    def _track(self, event: Any, legacy: Any, sequence: Sequence) -> int:
        if legacy.pid_override or legacy.tid_override:
            pid, tid = sequence.thread or (0, 0)
            return self._events.tracks.lane(legacy.pid_override or pid, legacy.tid_override or tid)
        return self._events.track(event.track_uuid or sequence.track, sequence)

    def _id(self, legacy: Any, sequence: Sequence) -> int:
        return int(legacy.unscoped_id or legacy.local_id or legacy.global_id)

    def _async(self, fields: dict[Any, Any], legacy: Any, sequence: Sequence, now: int, clock: int, phase: str) -> None:
        """A stack per scope and id; local ids hold within one process. Drawn on one track per process and name of the first."""
        events = self._events
        pid = (sequence.thread or (0, 0))[0] if legacy.HasField("local_id") else -1
        scope = legacy.id_scope or b""
        category, _ = events.category(fields, sequence)
        key = (pid, scope, category if not scope else -1, self._id(legacy, sequence))
        stack = self._chains.setdefault(key, len(self._chains)) if len(self._chains) < _MAX_CHAINS else _MAX_CHAINS
        name = events.name(fields, sequence)
        shown = str(events.builder.names.values_in_order[name])[:200]
        group = f"process {pid}" if pid > 0 else "trace"
        track = self._drawn.get(stack)
        if track is None:
            track = self._drawn[stack] = events.builder.track(
                ("chain", pid, name), lambda: Track(kind="other", name=f"{shown} (async)", group=group))
        events.row(fields, sequence, now, clock, _STACK + stack, track, _ASYNC[phase])

