"""One file that holds the traces of several ranks: tracks, ids and GPUs of each.

Correlation and External ids hold within a process. Tools that join ranks write all of them into one list of records: with a
prefix before each process, with a name that says the rank, or with nothing but the process's number. Without more, a launch
call of one rank owns the kernels of all, and two ranks that both call their GPU 0 share one. Whose is what: `rank_owners`.

Ids of the n-th rank get n in their upper half, which leaves those of the first as the file has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from profiles.ingest.arrays import Array, Ints, stable_order
from profiles.ingest.chrome.rank_owners import MOST_ROWS, NOBODY, Ids, label_of, labelled, overlapping, prefix
from profiles.ingest.core.build import IN_MEMORY_ROWS
from profiles.ingest.core.lanes import Depths
from profiles.ingest.core.spool import OVERLAPPING
from profiles.ingest.trace import FLOWS, SAMPLES, Device, Trace, Track
from profiles.ingest.windows import MISSING, MISSING32, Slices, Window, table_of

ID_BITS = 32                        # CUPTI's and rocprofiler's correlation ids are 32 bits wide


def split_ranks(trace: Trace, call_ids: Mapping[int, tuple[int, int]], titles: Mapping[str, str]) -> Trace:
    """Return the trace with its ranks told apart; as it is where it holds one.

    `call_ids`: of each track with launch calls the least and the greatest correlation id; `titles`: names of processes by pid.
    """
    tracks = trace.tracks
    stated = [label_of(track.pid or "", titles.get(track.pid or "", "")) for track in tracks]
    prefixed = [label or prefix(track.pid or "") for label, track in zip(stated, tracks, strict=True)]
    for labels, is_strong in ((stated, True), (prefixed, False)):
        if owners := labelled(tracks, labels, call_ids, is_strong):
            number = {label: index for index, label in enumerate(owners)}
            of_track = np.array([number.get(label, NOBODY) for label in labels])
            return _Split(trace, owners, of_track).trace("the file's processes are named by rank")
    return _split_by_ids(trace, call_ids, stated)


def _split_by_ids(trace: Trace, call_ids: Mapping[int, tuple[int, int]], stated: Sequence[str]) -> Trace:
    names = [label or (f"process {track.pid}" if track.pid is not None else "") for label, track in
             zip(stated, trace.tracks, strict=True)]
    owners = overlapping({number: ids for number, ids in call_ids.items() if names[number]}, names)
    if len(owners) < 2:
        return trace
    number = {name: index for index, name in enumerate(owners)}
    of_track = np.array([number.get(name, NOBODY) if track.kind != "stream" else NOBODY for name, track in
                         zip(names, trace.tracks, strict=True)])
    ids = Ids.read(trace, of_track)
    if ids is None:
        trace.integrity.notes.append(f"Processes of the file may share correlation ids; of more than {MOST_ROWS:,} launch calls "
                                     "and pieces of GPU work they are not told apart.")
        return trace
    if not ids.do_repeat():
        return trace
    return _Split(trace, owners, of_track, ids.owners_of_work(trace.tracks)).trace(
        "launch calls of several processes carry the same correlation ids")


class _Split:
    """`of_track`: the rank of each track, NOBODY where it has none.

    `of_work`: that of everything on GPU lanes, in the order of the windows, where tracks do not say it.
    """

    def __init__(self, trace: Trace, labels: Sequence[str], of_track: Array, of_work: Ints | None = None) -> None:
        self._trace, self._labels, self._of_work = trace, labels, of_work
        self._of_track = of_track.astype(np.int64)
        self._on_gpu = np.array([track.kind == "stream" for track in trace.tracks], np.bool_)
        lanes, devices = self._survey()
        used = lanes | {(int(self._of_track[number]), number) for number in np.flatnonzero(~self._on_gpu).tolist()}
        # tracks of nobody come last, all others by rank
        self._lanes = sorted(used, key=lambda pair: (pair[0] < 0, *pair))
        self._place = np.full((len(labels) + 1, max(len(trace.tracks), 1)), -1, np.int32)
        for place, (owner, track) in enumerate(self._lanes):
            self._place[owner, track] = place
        for track in range(len(trace.tracks)):                  # ends of arrows on lanes that have no slices of that rank
            column = self._place[:, track]
            column[column < 0] = column.max()
        self._devices = {pair: index for index, pair in enumerate(sorted(devices, key=lambda pair: (pair[0] < 0, *pair)))}

    def owners(self, track: Array, first: int = 0) -> Ints:
        """Return the rank of each row of a window; `first`: how many rows on GPU lanes came before."""
        owner: Ints = self._of_track[track]
        if self._of_work is not None:
            lying = np.flatnonzero(self._on_gpu[track])
            owner[lying] = self._of_work[first:first + lying.size]
        return owner

    def _survey(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Return the pairs of (rank, GPU lane) and of (rank, device) that occur."""
        lanes: set[tuple[int, int]] = set()
        devices: set[tuple[int, int]] = set()
        first = 0
        for window in self._trace.windows():
            track, device = window.columns["track"].astype(np.int64), window.columns["device"].astype(np.int64)
            owner, lying = self.owners(track, first), self._on_gpu[track]
            first += int(np.count_nonzero(lying))
            for pairs, values in ((lanes, track[lying]), (devices, device[device != MISSING32])):
                mine = owner[lying] if pairs is lanes else owner[device != MISSING32]
                pairs |= set(zip(*np.unique(np.stack([mine, values]), axis=1).tolist(), strict=True))
        return lanes, devices

    def trace(self, why: str) -> Trace:
        """Return the trace of several ranks. `why`: what tells them apart, for the integrity report."""
        old = self._trace
        slices = _RankSlices(old.parts, self)
        shown = ", ".join(self._labels[:8]) + (" …" if len(self._labels) > 8 else "")
        old.integrity.notes.append(
            f"The file holds {len(self._labels):,} ranks ({shown}): {why}. Ids hold within a rank, each has GPUs of its own, and "
            "all are on the file's clock.")
        trace = Trace(
            old.format, table_of(slices) if slices.rows <= IN_MEMORY_ROWS else slices, self._tracks(), self._gpus(),
            old.integrity, self._samples(old.samples), self._flows(old.flows), old.base_ns, metadata={
                **old.metadata, "ranks": {label: {} for label in self._labels},
                "alignment": {"rule": "as in the file", "residual_ns": None},
                "devices": [f"{self._name(owner)}GPU {device}" for owner, device in self._devices]})
        trace.colours, trace.tables = old.colours, old.tables
        return trace

    def _name(self, owner: int, between: str = " · ") -> str:
        return f"{self._labels[owner]}{between}" if owner >= 0 else ""

    def _tracks(self) -> list[Track]:
        out = []
        for place, (owner, number) in enumerate(self._lanes):
            track = self._trace.tracks[number]
            device = self._devices.get((owner, track.device)) if track.device is not None else None
            group = _without_prefix(track) if owner >= 0 else track.group
            out.append(replace(track, group=f"{self._name(owner, ': ')}{group}", sort=place, device=device))
        return out

    def _gpus(self) -> list[Device]:
        gpu_by_index = {device.index: device for device in self._trace.devices}
        only = next(iter(gpu_by_index.values())) if len({device.name for device in gpu_by_index.values()}) == 1 else Device(0, "")
        return [replace(gpu_by_index.get(device, only), index=index) for (_, device), index in self._devices.items()]

    def move(self, columns: dict[str, Array], first: int) -> dict[str, Array]:
        """Return a window's columns with their ranks' tracks, GPUs and ids."""
        owner = self.owners(columns["track"], first)
        out = {**columns, "track": self._place[owner, columns["track"]]}
        for name in ("correlation", "external_id"):             # a mark of the allocator has an address in place of an id
            mine = (columns[name] != MISSING) & ~columns["instant"] & (owner > 0)
            out[name] = columns[name] + np.where(mine, owner, 0) * (1 << ID_BITS)
        device = columns["device"].astype(np.int64)
        rows = np.flatnonzero(device != MISSING32)
        pairs, place = np.unique(np.stack([owner[rows], device[rows]]), axis=1, return_inverse=True)
        numbers = np.full(device.size, MISSING32, np.int32)
        numbers[rows] = np.array([self._devices[whose, of] for whose, of in pairs.T.tolist()], np.int32)[place.reshape(-1)]
        return {**out, "device": numbers}

    def devices(self) -> list[int]:
        return list(self._devices.values())

    def _samples(self, table: pa.Table) -> pa.Table:
        track = table["track"].to_numpy()
        place = self._place[self._of_track[track], track]
        order = stable_order(place)
        return table.set_column(0, "track", pa.array(place)).take(pa.array(order)).cast(SAMPLES)

    def _flows(self, table: pa.Table) -> pa.Table:
        track = table["track"].to_numpy()
        owner = self._of_track[track]
        flow = table["flow"].to_numpy() + np.maximum(owner, 0) * (1 << ID_BITS)
        moved = table.set_column(table.schema.get_field_index("flow"), "flow", pa.array(flow))
        return moved.set_column(moved.schema.get_field_index("track"), "track", pa.array(self._place[owner, track])).cast(FLOWS)

    @property
    def is_by_row(self) -> bool:
        return self._of_work is not None

    def on_gpu(self, track: Array) -> int:
        return int(np.count_nonzero(self._on_gpu[track]))

    def report_overlaps(self, count: int) -> None:
        """Replace the count of the lanes that several ranks shared."""
        self._trace.integrity.repaired.pop(OVERLAPPING, None)
        self._trace.integrity.repair(OVERLAPPING, count)


def _without_prefix(track: Track) -> str:
    """Return "python (83)" for "python ([TP00] 83)": whose it is stands before it."""
    number = re.search(r"\d+$", track.pid or "")
    return track.group.replace(track.pid, number[0]) if track.pid and number else track.group


class _RankSlices:
    """`profiles.ingest.windows.Slices` of one file's ranks."""

    def __init__(self, slices: Slices, split: _Split) -> None:
        self._slices, self._split = slices, split
        self.rows, self.names, self.details, self.end_ns = slices.rows, slices.names, slices.details, slices.end_ns
        self.devices = split.devices()
        self._counted = False

    def windows(self) -> Iterator[Window]:
        """Yield all slices; where lanes were divided among ranks, laid out anew."""
        first, laid = 0, Depths()
        for window in self._slices.windows():
            columns = self._split.move(window.columns, first)
            first += self._split.on_gpu(window.columns["track"])
            moved = Window(columns, window.end_ns, window.more)
            if self._split.is_by_row:
                columns["depth"] = laid.add(moved)
            yield moved
        if self._split.is_by_row and not self._counted:
            self._split.report_overlaps(laid.overflowed)
            self._counted = True
