"""`cutlass_profiler` asked for what it can run of a product, and to check and time one configuration."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.tuning.kernels.vendor.program import Bounds, ProgramFailed, run_program
from tuner.tuning.trial import Config
from tuner.tuning.vendor.cutlass_table import DIRECT, TRANSPOSED, Product, list_configs, read_result, read_rows, run_arguments

PROGRAM = "cutlass_profiler"
ITERATIONS, WARMUP = 50, 5
LISTING, RUN = Bounds(seconds=60.0), Bounds(seconds=20.0, file_bytes=4 << 20)
RIGHT, WRONG = "passed", "incorrect"        # dispositions of a kernel that was verified


@dataclass(frozen=True)
class Result:
    """The profiler's row of one run: ms of a launch, not a number where it is wrong, and what its verification says."""

    ms: float
    disposition: str


@dataclass(frozen=True)
class Profiler:
    """The program at `path`. Its methods raise ProgramFailed where it ends badly, TableError where it writes no table."""

    path: str

    def list(self, product: Product, capability: int) -> tuple[list[Config], Counter[str]]:
        """Return the configurations for a product on compute capability 9.0 (90), and what was left out by reason."""
        configs: list[Config] = []
        left_out: Counter[str] = Counter()
        for orientation in (DIRECT, TRANSPOSED):
            table = self._run(["--mode=dry_run", "--report-not-run=true", *product.arguments(orientation)], LISTING)
            listed, others = list_configs(read_rows(table) if table else [], product, orientation, capability)
            configs += listed
            left_out += others
        return configs, left_out

    def profile(self, config: Config, product: Product, seed: int) -> Result:
        """Check and time one configuration on inputs of a seed."""
        table = self._run([*run_arguments(config, product), "--verification-enabled=true", f"--seed={seed % 2**31}",
                           f"--profiling-iterations={ITERATIONS}", f"--warmup-iterations={WARMUP}"], RUN)
        if not table:
            raise ProgramFailed(f"{PROGRAM} wrote no table: it was built without this kernel, or it does not take the problem")
        ms, disposition, status = read_result(table, str(config["KERNEL"]))
        if disposition not in (RIGHT, WRONG):
            raise ProgramFailed(f"{PROGRAM} has not verified it: disposition {disposition}, status {status}; it needs a reference "
                                "for these types, of its own or cuBLAS, when it is built")
        if ms is None and disposition == RIGHT:
            raise ProgramFailed(f"{PROGRAM} gives no time: disposition {disposition}, status {status}")
        return Result(ms or math.nan, disposition)

    def _run(self, arguments: Sequence[str], bounds: Bounds) -> bytes:
        """Return the table that the profiler wrote; b"" where it wrote none, as where no kernel takes the problem."""
        with tempfile.TemporaryDirectory(prefix="cutlass-") as name:
            folder = Path(name)
            argv = [self.path, "--operation=Gemm", "--providers=cutlass", "--verbose=false", *arguments,
                    f"--output={folder / 'report'}"]
            run_program(argv, folder, bounds)
            table = folder / "report.gemm.csv"
            return table.read_bytes() if table.is_file() else b""
