"""The process that makes one call of a CUDA C++ file's host function: `python -m tuner.bring.cuda.child PARENT_PID`.

Request and answers as those of `tuner.bring.child`: {"file", "call", "dtype"}, then {"recorded": …} as `calls.session` tells it.
What it compiles and calls is the file's own code, with the rights of this process. No GPU is seen.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from profiles.base.refused import Refused
from tuner.bring.calls.expression import CallExpression, read_call
from tuner.bring.calls.pretending import pretended, stand_in_tensors
from tuner.bring.calls.stand_ins import stand_in_gpu
from tuner.bring.calls.values import Values
from tuner.bring.cuda import headers
from tuner.bring.cuda.build import BUILD_S, build, has_headers, keep_headers
from tuner.bring.cuda.host_text import HostPart, host_part
from tuner.bring.cuda.recorder import Recorder
from tuner.bring.cuda.session import GIVES_OTHER, CudaSession, Library
from tuner.bring.cuda.structs import fields_of
from tuner.bring.forked import bound_data
from tuner.bring.process import CALL_S
from tuner.tuning import wire
from tuner.tuning.kernels.problem import torch_dtype

STANDS_IN_FOR = "9.0"
MAX_DATA_BYTES = 12 << 30
DTYPES = ("float32", "float16", "bfloat16")         # of tensors whose call names none: the first that the host takes
_OF_TYPES = ("scalar type", "not implemented for", "dtype", "type", "Half", "BFloat16", "float")


def main(argv: Sequence[str]) -> int:
    """Answer one request; return the exit status."""
    wire.enter_child(int(argv[0]))
    request = json.loads(sys.stdin.readline())
    bound_data(MAX_DATA_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))            # of a host that reads what is not there
    with os.fdopen(int(os.environ["RIDGEPOINT_ANSWER_FD"]), "w") as answer, tempfile.TemporaryDirectory() as folder:
        def say_step(what: str, most_s: float) -> None:
            answer.write(json.dumps({"step": {"what": what, "most_s": most_s}}) + "\n")
            answer.flush()

        try:
            result = record(Path(request["file"]), request["call"], request["dtype"], Path(folder), request["macros"], say_step)
        except Refused as refused:
            result = {"failed": str(refused)}
        answer.write(json.dumps({"recorded": result}, default=str) + "\n")
    os.write(int(os.environ["RIDGEPOINT_WHOLE_FD"]), b".")
    os._exit(0)                         # not through destructors of the file's own


def record(path: Path, text: str, dtype: str, folder: Path, macros: Mapping[str, int],
           step: Callable[[str, float], None] = lambda what, most_s: None) -> dict[str, Any]:
    """Return what a call launches, as `calls.session` tells it; `step` is told what is done now, and for how many seconds at most.

    Raises Refused where it cannot be compiled.
    """
    call = read_call(text)
    part = host_part(path.read_text(errors="replace"), path.parent, path.name, call.function, fields_of(call.tree), macros)
    cache = os.environ.get(headers.FOLDER, "")
    if part.uses_torch and cache and not has_headers() and (os.access(cache, os.W_OK) or not Path(cache).exists()):
        step(headers.SAYS, headers.MAKE_S)              # behind walls they are read alone
        keep_headers(Path(cache))
    step(f"compiling the host's part{' with PyTorch’s headers' if part.uses_torch else ''}", BUILD_S)
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build, part, folder, path.name)
        mode = _stand_in()
        library = building.result()
    step("making the call, and again with other numbers", CALL_S)
    return record_built(library, part, call, mode, dtype)


def _stand_in() -> FakeTensorMode:
    """Answer for a GPU; what torch imports for tensors without memory is imported while the compiler is at work."""
    stand_in_gpu(STANDS_IN_FOR)
    stand_in_tensors()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with pretended(mode, Values()):
        torch.empty(2) + 1
    return mode


def record_built(built: Path, part: HostPart, call: CallExpression, mode: FakeTensorMode, dtype: str) -> dict[str, Any]:
    """Return what a call of a compiled host part launches; in the first type of tensors that it takes where none is asked."""
    library = Library(built, part, Recorder())
    first: dict[str, Any] = {}
    for name in [dtype] if dtype else DTYPES:
        session = CudaSession(library, call.function, mode, torch_dtype(dtype) if dtype else getattr(torch, name))
        result = {**session.record(call), "passed_over": list(dict.fromkeys(library.recorder.passed_over))}
        if "failed" not in result:
            return result
        first = first or result
        if result["failed"].startswith(GIVES_OTHER) or not any(word in result["failed"] for word in _OF_TYPES):
            break
    if first["failed"] == "the call launches no Triton kernel":
        first["failed"] = "the call launches no kernel"
    return first




if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
