"""What packages of a team import: `from tuner.team.adapter import Dim, TritonOperator`. It lies in `tuner.tuning.team.adapter`."""

from tuner.tuning.team.adapter import CudaKernel, CudaOperator, Dim, Struct, TritonOperator, cdiv, launch_default

__all__ = ["CudaKernel", "CudaOperator", "Dim", "Struct", "TritonOperator", "cdiv", "launch_default"]
