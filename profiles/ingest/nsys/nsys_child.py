"""The process that becomes `nsys export`: `python -I nsys_child.py MEMORY_BYTES CPU_SECONDS FILE_BYTES NSYS ARGUMENT…`.

A program of its own, importing nothing of this project: it sets limits on itself and then executes NVIDIA's tool with the
argument vector it was given. No shell is involved.
"""

import ctypes
import os
import resource
import signal
import sys


def main(memory_bytes: int, cpu_seconds: int, file_bytes: int, command: list[str]) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)      # PR_SET_PDEATHSIG: never outlive the worker
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
