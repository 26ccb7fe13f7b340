"""The process that compiles a candidate for a GPU that need not be here: `python -m tuner.candidates.judge.compiling`.

The request is that of `child`, with "compute_capability" and "sms". The answer is {"loaded"} and {"compiled": {"gpu", "config",
"registers", "spills", "smem_bytes", "occupancy_pct", "kernels", "seconds"}}, or {"failed": {"where", "what"}} where no GPU could
launch it either, or {"not_compiled": why} where only a GPU can tell. What it would launch is compiled, and nothing runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from triton.compiler import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tuner.candidates.judge import loading
from tuner.candidates.judge.child import Failed, Judge, Refused, answer, read_request
from tuner.tuning.measure import offline
from tuner.tuning.operators import limits
from tuner.tuning.trial import error_text

META = torch.device("meta")


class CompileOnly(Judge):
    """A judge that compiles what the candidate would launch."""

    def run(self, folder: Path) -> None:
        """Compile. Raises Refused and Failed."""
        request, began_s = self.request, time.monotonic()
        capability, sms = str(request["compute_capability"]), int(request["sms"])
        offline.set_target(capability, sms)
        try:
            own = loading.open_operator(request["operator"], request["shape"], request["dtype"], META, 0)
        except Exception as error:
            raise Refused(error_text(error)) from error
        default = dict(own.operator.default_config(request["shape"], request["dtype"], limits("", capability, sms)))
        loaded = self._load(folder, own)
        if loaded is None:
            return
        self.say(loaded={"form": loaded.form, "names": list(loaded.names)}, own={"inputs": sorted(own.inputs)})
        config = dict(request["config"] or default)
        kernels = collect_compiled()
        try:
            loaded.launch(config)
        except CompilationError as error:
            raise Failed("compile", error) from error
        except Exception as error:
            if offline.is_resources(error):
                raise Failed("compile", error) from error
            self.say(not_compiled=f"without a GPU it cannot be put together: {error_text(error)}"[:600])
            return
        facts = offline.static_facts(kernels, capability)
        if too_much := offline.why_not_start(facts, capability):
            raise Failed("compile", RuntimeError(f"compiles, and does not fit: {too_much}"))
        if not kernels:
            self.say(not_compiled="it launches no Triton kernel: only a GPU can tell")
            return
        self.say(compiled={"gpu": f"sm_{capability.replace('.', '')}", "config": config, "kernels": len(kernels),
                           "seconds": round(time.monotonic() - began_s, 2),
                           **{name: facts.get(name) for name in ("registers", "spills", "smem_bytes", "occupancy_pct")}})

    def _load(self, folder: Path, own: loading.Own) -> loading.Loaded | None:
        try:
            return loading.load(loading.import_text(self.request["text"], folder, own), own)
        except (SyntaxError, ImportError, loading.ContractBroken) as error:
            raise Failed("contract" if isinstance(error, loading.ContractBroken) else "import", error) from error
        except Exception as error:          # it may ask for a GPU when it is imported
            self.say(not_compiled=f"without a GPU it cannot be imported: {error_text(error)}"[:600])
            return None


def collect_compiled() -> list[Any]:
    """Let every launch of a Triton kernel compile it and do no more; return the list that the compiled ones come into."""
    kernels: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled = run(self, *args, grid=grid, warmup=True, **options)
        kernels.append(compiled)
        return compiled

    def first_config(self: Any, *args: Any, **options: Any) -> Any:
        return self.fn.run(*args, **{**self.configs[0].all_kwargs(), **options})

    JITFunction.run = compile_only
    Autotuner.run = first_config
    return kernels


def main(arguments: Sequence[str] = ()) -> int:
    """Answer one request; return the exit status."""
    request = read_request()
    return answer(request, lambda say: CompileOnly(request, META, say))


if __name__ == "__main__":
    sys.exit(main())
