"""The example profiles: real files of tests/data/h200, labelled as recorded."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.db import connection, transaction

from profiles.ceilings.services import ceilings_load, ceilings_read
from profiles.models import Profile
from profiles.upload.services import profile_create
from workers import disk

FOLDER = Path(settings.BASE_DIR) / "tests" / "data" / "h200"
TRACED = "recorded on NVIDIA H200, 2026-11-21"  # the date that the traces state
COUNTED = "recorded on NVIDIA H200, Nsight Compute 2025.3.1"  # the reports state no date
_LOCK = 0x5247_5054  # pg advisory lock: two clicks load once


@dataclass(frozen=True)
class Example:
    """A profile to be; several files are the ranks of one job."""

    files: tuple[str, ...]
    name: str
    recorded: str
    build: str = ""
    model: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""


EXAMPLES: tuple[Example, ...] = (  # as they stand in lists: the newest first, so build B before A
    Example(
        ("kineto_train.json.gz",),
        "MLP training",
        TRACED,
        model="mlp-8",
        tags=("example", "training"),
        notes="8-block MLP, bf16 autocast, AdamW; loss.item() in every step.",
    ),
    Example(
        ("full.ncu-rep.zst",),
        "Eleven kernels, all counters",
        COUNTED,
        tags=("example", "counters"),
        notes="ncu --set full: two GEMMs, elementwise, softmax, layer norm, transpose, cumsum, sum, cast, double.",
    ),
    Example(
        ("buildB.ncu-rep.zst",),
        "Triton program, build B",
        COUNTED,
        build="buildB",
        model="triton-five",
        tags=("example", "counters", "builds"),
        notes="The same program with other configurations.",
    ),
    Example(
        ("buildA.ncu-rep.zst",),
        "Triton program, build A",
        COUNTED,
        build="buildA",
        model="triton-five",
        tags=("example", "counters", "builds"),
        notes="5 kernels × 3 launches; compare with build B.",
    ),
    Example(
        ("kineto_layer.json.gz",),
        "Transformer layer",
        TRACED,
        model="layer-4096",
        tags=("example", "inference"),
        notes="Hidden 4096, sequence 2048, fp16; 4 steps.",
    ),
    Example(
        ("kineto_layer_stack.json.gz",),
        "Transformer layer with stacks",
        TRACED,
        model="layer-4096",
        tags=("example", "inference", "stacks"),
        notes="The same with Python stacks and memory; 2 steps.",
    ),
    Example(
        ("ddp_even_rank0.json.gz", "ddp_even_rank1.json.gz"),
        "DDP training, 2 ranks",
        TRACED,
        model="ddp",
        tags=("example", "training", "distributed"),
        notes="NCCL over NVLink; 5 steps.",
    ),
)


def missing_files() -> list[str]:
    """Return the files that this installation lacks: their examples cannot be offered."""
    return [name for example in EXAMPLES for name in example.files if not (FOLDER / name).is_file()]


def loaded_profiles() -> dict[str, Profile]:
    """Return file name -> the example's profile, whatever its state."""
    rows = Profile.objects.filter(recorded__in={example.recorded for example in EXAMPLES}, tags__contains=["example"])
    return {row.file_name: row for row in rows.order_by("created")}


def load(owner: Any) -> list[Profile]:
    """Create missing example profiles and return them; safe when clicked often. Raises NoRoom."""
    disk.require_room()
    absent = set(missing_files())
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        _load_ceilings(owner)
        there = loaded_profiles()
        new_examples = [example for example in EXAMPLES if example.files[0] not in there and not absent.intersection(example.files)]
        return [_create(example, owner) for example in reversed(new_examples)]  # the newest row leads every list


def _load_ceilings(owner: Any) -> None:
    """What a GPU of the recordings' model reached: rooflines show it beside the data sheet."""
    path = FOLDER / "ceilings.json"
    if path.is_file():
        ceilings_load(ceilings_read(path.read_bytes()), owner=owner)


def _create(example: Example, owner: Any) -> Profile:
    with ExitStack() as opened:
        files = [File(opened.enter_context((FOLDER / name).open("rb")), name=name) for name in example.files]
        return profile_create(
            owner=owner,
            file=files[0],
            more_files=files[1:],
            name=example.name,
            build=example.build,
            model=example.model,
            tags=example.tags,
            notes=example.notes,
            recorded=example.recorded,
        )
