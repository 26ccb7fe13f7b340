"""What may be done to a pasted kernel file: check it, stop that, count an edited space; and what its worker writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.bring import edited
from tuner.bring.calls.expression import read_call
from tuner.bring.checks import selectors
from tuner.bring.checks.answer import read_operators
from tuner.bring.travel.files import check_folder, read_files
from tuner.models import KernelCheck
from tuner.tuning.trial import cleaned
from workers import jobs

PROJECT = Path(__file__).resolve().parents[3]
MAX_TEXT_BYTES = 256 * 1024
KEPT = 30                   # of a project; older ones go when one is made
READ_S = 15.0               # of reading a text alone, in a process with a limit of memory
MAX_ANSWER_BYTES = 8 << 20
DTYPES = ("bf16", "fp16", "fp32", "fp8")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,70}\.(?:py|cu|cuh)\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}\Z")
MAX_NUMBERS, MOST_SAMPLES, MOST_STEP_S = 16, 1 << 20, 3600
Status = KernelCheck.Status


def check_create(text: str, *, file: str = "", shape: str | Mapping[str, Any] = "", dtype: str = "", call: str = "",
                 siblings: Mapping[str, str] | None = None, folder: str = "", source: Mapping[str, Any] | None = None,
                 owner: Any) -> KernelCheck:
    """Store a pasted file with what its text says, and wake a worker that compiles samples of it. Raises Refused.

    siblings  {path: text} of files that come with it, below a root
    folder    where the file itself lies below that root
    source    of a file that was fetched before: checks.sources.read_source
    """
    text = check_text(text)
    name = file.strip() or _usual_name(text)
    request = read_asked(name, shape, dtype, call)
    try:
        files, below = read_files(siblings or {}), check_folder(folder.strip("/"))
    except Refused as refused:
        raise Refused({"siblings": refused.what}) from refused
    files.pop(f"{below}/{name}".lstrip("/"), None)
    call_text = request.pop("call")
    reply = read_alone({**request, "text": text})
    return check_store(owner=owner, text=text, folder=below, siblings=files, source=source, adapters=reply["adapters"], **request,
                       result={"file": name, "operators": reply["operators"], "call": call_text, "proposals": reply["proposals"]})


def check_text(text: str) -> str:
    """Return the text of a file without NUL. Raises Refused."""
    if not text.strip():
        raise Refused({"text": "paste a kernel file, or drop one"})
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        raise Refused({"text": f"{len(text.encode(errors='replace')):,} bytes; at most {MAX_TEXT_BYTES:,}"})
    return text.replace("\0", "")


def read_asked(file: str, shape: str | Mapping[str, Any], dtype: str, call: str) -> dict[str, Any]:
    """Return {"file", "shape", "dtype", "call"} of what was asked; "" as file: not known yet. Raises Refused."""
    if file and not _FILE.match(file):
        raise Refused({"file": "a name like add.py or add.cu: letters, digits, _ . -"})
    if dtype and dtype not in DTYPES:
        raise Refused({"dtype": f"one of {', '.join(DTYPES)}"})
    call = call.strip()
    if call:
        try:
            read_call(call)
        except Refused as refused:
            raise Refused({"call": refused.what}) from refused
    return {"file": file, "shape": read_shape(shape), "dtype": dtype, "call": call}


def check_store(**fields: Any) -> KernelCheck:
    """Make the row, delete the oldest of its project, and wake a worker."""
    with transaction.atomic():
        check = KernelCheck.objects.create(**fields)
        old = KernelCheck.objects.filter(project=check.project_id).order_by("-pk").values_list("pk", flat=True)[KEPT:]
        for row in KernelCheck.objects.filter(pk__in=list(old)):
            row.delete()
        for queue in selectors.living_queues() or selectors.QUEUES:
            jobs.enqueue_on_commit(queue, "check", check.pk)
    check_publish(check)
    return check


def _usual_name(text: str) -> str:
    return "kernel.cu" if "__global__" in text and not re.search(r"^\s*(?:import|from)\s", text, re.MULTILINE) else "kernel.py"


def read_shape(shape: str | Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of "M=4096 N=4096" or of a mapping. Raises Refused."""
    if isinstance(shape, str):
        pairs = [part.partition("=")[::2] for part in shape.replace(",", " ").split()]
    else:
        pairs = [(str(name), str(value)) for name, value in shape.items()]
    for name, value in pairs:
        if not _NAME.match(name) or not value.isdecimal() or len(value) > 12:
            raise Refused({"shape": f"{name}={value}"[:60] + ": expected NAME=NUMBER"})
    if len(pairs) > MAX_NUMBERS:
        raise Refused({"shape": f"at most {MAX_NUMBERS} numbers"})
    return {name: int(value) for name, value in pairs}


def read_alone(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the text of a file says; nothing of it runs. Raises Refused.

    In a process of its own: a text may be made to take all time and memory of who reads it.
    """
    environ = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(PROJECT), "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
    payload = json.dumps({**request, "compiles": False}).encode()
    too_much = Refused({"text": "reading it takes too much time or memory"})
    with subprocess.Popen([sys.executable, "-m", "tuner.bring.pasted"], cwd=PROJECT, env=environ, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            answer, _ = process.communicate(payload, timeout=READ_S)
        except subprocess.TimeoutExpired as error:
            raise too_much from error
        finally:
            process.kill()
    if process.returncode or len(answer) > MAX_ANSWER_BYTES or not answer:
        raise too_much
    reply = cleaned(json.loads(answer.splitlines()[-1]))
    if "refused" in reply:
        raise Refused({"text": str(reply["refused"])[:500]})
    try:
        return {"operators": read_operators(reply), "adapters": reply["adapters"],
                "proposals": [str(proposal) for proposal in reply.get("proposals", ())]}
    except Refused as error:
        raise too_much from error


def check_stop(check: KernelCheck) -> bool:
    """Stop a check; what its text says stays. False where it had ended already."""
    stopped = KernelCheck.leases.stop(check.pk, Status.STOPPED)
    if stopped:
        check_publish(KernelCheck.objects.get(pk=check.pk))
    return stopped


def check_claim(check_id: int, worker: str) -> KernelCheck | None:
    """Return the row for `worker`, or None where it is not free."""
    if not KernelCheck.leases.claim(check_id, worker, started=timezone.now(), error=None, compiled=0, samples=0):
        return None
    check = KernelCheck.objects.get(pk=check_id)
    check_publish(check)
    return check


def check_progress(check: KernelCheck, worker: str, reply: Any) -> None:
    """Store and tell how many samples of how many are compiled; what is no such pair is left."""
    if not isinstance(reply, list) or len(reply) != 2 or not all(type(step) is int and 0 <= step < MOST_SAMPLES for step in reply):
        return
    compiled, samples = reply
    if KernelCheck.leases.write(check.pk, worker, compiled=compiled, samples=samples):
        jobs.publish(f"check.{check.pk}", "progress", {"id": check.pk, "compiled": compiled, "samples": samples})


def check_step(check: KernelCheck, worker: str, what: Any, most_s: Any) -> None:
    """Store and tell what is done before samples are compiled; what is no such step is left."""
    if not isinstance(what, str) or type(most_s) not in (int, float) or not 0 < most_s <= MOST_STEP_S:
        return
    step = {"what": what[:120], "since": timezone.now().isoformat(), "most_s": most_s}
    if KernelCheck.leases.write(check.pk, worker, result={**check.result, "step": step}):       # its end writes the result anew
        check_publish(KernelCheck.objects.get(pk=check.pk))


def check_done(check: KernelCheck, worker: str, reply: Any) -> None:
    """End a check with what its process answered; as failed where that is no answer."""
    try:
        operators = read_operators(reply)
    except Refused as error:
        check_fail(check, worker, str(error), "the file may have ended the process that imports it")
        return
    adapters = _adapters_of_call(check, reply)
    if KernelCheck.leases.end(check.pk, worker, Status.DONE, result={**check.result, "operators": operators}, adapters=adapters):
        check_publish(KernelCheck.objects.get(pk=check.pk))


def _adapters_of_call(check: KernelCheck, told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the adapters of what a check's call launched, written beside the text alone; without a call those of the text."""
    call = check.result.get("call")
    if not call or "recorded" not in told:
        return list(check.adapters)
    request = {"file": check.file, "text": check.text, "folder": check.folder, "siblings": check.siblings, "shape": check.shape,
               "dtype": check.dtype, "call": call}
    try:
        written: list[dict[str, Any]] = read_alone({**request, "recorded": told["recorded"]})["adapters"]
    except Refused:                # no record, or one made to take all time: what the text tells stays
        return list(check.adapters)
    return written


def check_fail(check: KernelCheck, worker: str, what: str, hint: str = "") -> None:
    """End a check without a result; what the text says stays."""
    error = {"where": check.file, "what": cleaned(what)[:500], "hint": hint}
    if KernelCheck.leases.end(check.pk, worker, Status.FAILED, error=error):
        check_publish(KernelCheck.objects.get(pk=check.pk))


def check_publish(check: KernelCheck) -> None:
    """Tell the pages that watch it."""
    jobs.publish(f"check.{check.pk}", "status", {"id": check.pk, "status": check.status})


def queue_of(check: KernelCheck) -> str:
    """Return the queue where a check is woken."""
    return next(iter(selectors.living_queues()), selectors.QUEUES[0])


def count_space(params: Mapping[str, str | Sequence[Any]], constraints: Sequence[str], *, check: KernelCheck | None = None,
                kernel: str = "", text: str = "") -> dict[str, Any]:
    """Return how many configurations of an edited space can run, and the adapter with it where a check's kernel is named.

    text  of the adapter, where it is another one than the check's own
    Raises edited.Refused; its `where` names the parameter, or "constraints".
    """
    adapter = selectors.adapter_of(check, kernel) if check is not None else None
    base = adapter["space"] if adapter else {"params": [], "default": {}, "constraints": []}
    before = edited.EditedSpace(
        {param["name"]: tuple(param["values"]) for param in base["params"]}, base["default"],
        {limit["reason"]: limit["expression"] for limit in base["constraints"]}, base.get("names") or edited.read_space("").names)
    values = {name: edited.read_values(name, text) if isinstance(text, str) else edited.check_values(name, text)
              for name, text in params.items()}
    reasons = {rule: reason for reason, rule in before.constraints.items()}
    rules = {reasons.get(rule, rule)[:edited.MAX_REASON]: rule for line in constraints if (rule := line.strip())}
    space = edited.edit(before, values, rules)
    counted = edited.count(space)
    unchanged = adapter is not None and base["listed"] and not rules and values == before.params
    return {"size": counted.size, "valid": counted.valid, "default": space.default, "default_breaks": counted.default_breaks,
            "constraints": [{"reason": reason, "expression": rules.get(reason, ""), "left_out": left_out}
                            for reason, left_out in counted.left_out.items()],
            "adapter": ((text or adapter["text"]) if unchanged else edited.write_space(text or adapter["text"], space))
            if adapter else None}
