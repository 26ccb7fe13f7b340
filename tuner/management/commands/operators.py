"""manage.py operators [list | enable PACKAGE | disable PACKAGE | describe PACKAGE | check FILE[:NAME] | init FILE[:NAME]]"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from profiles.base.refused import Refused
from tuner.bring.calls.drafts import draft_of_call
from tuner.bring.calls.expression import is_expression
from tuner.bring.check import check_file, read_file, with_real_configs
from tuner.bring.cuda import headers
from tuner.bring.cuda.check import choose_source, read_sources
from tuner.bring.cuda.found import draft_of_call as draft_of_cuda_call
from tuner.bring.cuda.write import file_beside, write_cuda_adapter
from tuner.bring.recorded import Call, read_calls
from tuner.bring.report import lines_of
from tuner.bring.source import Kernel
from tuner.bring.write import Draft, module_of, write_adapter
from tuner.models import OperatorPackage
from tuner.team import selectors, services
from tuner.tuning.operators import all_operators
from tuner.tuning.team.packages import normal_name
from webapp.management.in_project import take_any_order

OF_PACKAGES = ("enable", "disable", "describe")
WRONG_USE = 2
ADAPTER = "{}_ridgepoint.py"


class Command(BaseCommand):
    help = ("What can be tuned, which packages of teams may bring operators (an owner's decision), and what a kernel file lacks "
            "to become one. check: exit code 0 where nothing is wrong or missing, 1 where something is, 2 where there is no such "
            "file or kernel. check and init need no server and no GPU.")
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **options)
        take_any_order(parser)
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("do", nargs="?", choices=["list", *OF_PACKAGES, "check", "init"], default="list")
        parser.add_argument("what", nargs="?", default="", metavar="PACKAGE | FILE[:NAME]")
        parser.add_argument("--json", action="store_true")
        parser.add_argument("--shape", default="", metavar="M=4096,N=4096",
                            help="check: values of dimensions and other whole numbers")
        parser.add_argument("--dtype", default="", help="check: of the tensors (bf16, fp16, fp32, fp8); else an operator's first")
        parser.add_argument("--run", action="store_true",
                            help="check: on a GPU here, check results and time the default configuration")
        parser.add_argument("--call", default="", metavar="CALL | CALLS.json",
                            help="check, init: one call of the file's own function, \"softmax(randn(8192, 4096))\", made without a "
                                 "GPU, on tensors without memory; init: also a recording of `record` of the client")
        parser.add_argument("--reference", default="", metavar="NAME",
                            help="init with a call: the function of the file that computes the same in torch")
        parser.add_argument("--out", default="", metavar="FILE.py",
                            help=f"init: where to write, - for standard output (default: {ADAPTER.format('FILE')} beside it)")

    def handle(self, *args: Any, do: str, what: str, json: bool, **options: Any) -> None:
        if do in (*OF_PACKAGES, "check", "init") and not what:
            meant = "PACKAGE" if do in OF_PACKAGES else "FILE[:NAME], of Python or CUDA C++"
            raise CommandError(f"operators {do}: of what? {meant}", returncode=WRONG_USE)
        try:
            if do == "check":
                self._check(*split_name(what), json, options)
            elif do == "init":
                self._init(*split_name(what), options)
            elif do == "list":
                self._list(json)
            else:
                self._change(do, what)
        except Refused as refused:
            raise CommandError(str(refused), returncode=WRONG_USE) from refused

    def _check(self, path: Path, name: str, as_json: bool, options: dict[str, Any]) -> None:
        shows = not as_json and self.stderr.isatty()
        os.environ.setdefault(headers.FOLDER, str(Path(settings.HOME) / "host-headers"))
        reports = check_file(path, name, read_shape(options["shape"]), options["dtype"], run=options["run"], call=options["call"],
                             step=lambda what, most_s: self.stderr.write(f"{what}, at most {most_s:.0f} s") if shows else None,
                             say=lambda done, of: self.stderr.write(f"\r{done} of {of} compiled", ending="") if shows else None)
        if shows:
            self.stderr.write("\r\033[K", ending="")
        if as_json:
            self.stdout.write(json.dumps({"file": str(path), "operators": [report.as_json() for report in reports]}, default=str))
        else:
            self.stdout.write("\n\n".join("\n".join(lines_of(report, path.name)) for report in reports))
        if any(report.problems for report in reports):
            sys.exit(1)

    def _init(self, path: Path, name: str, options: dict[str, Any]) -> None:
        target = Path(options["out"]) if options["out"] else path.with_name(ADAPTER.format(path.stem))
        sources = read_sources(path)
        if sources is not None and is_expression(options["call"]):
            macros = read_shape(options["shape"])
            draft, text = draft_of_cuda_call(path, name, options["call"], options["dtype"], macros), None
        elif sources is not None:
            source = choose_source(sources, name, path)
            file, text = file_beside(source, path if options["out"] == "-" else target)
            draft = write_cuda_adapter(source, file)
        else:
            draft, text = self._draft(path, name, options), None
        if options["out"] == "-":
            self.stdout.write(draft.text)
            return
        if text is not None:
            self._write(path.with_name(file), text)
        self._write(target, draft.text)
        self.stdout.write(f"{target} is written. Left to do:" if draft.to_do else f"{target} is written.")
        self.stdout.write("\n".join([*(f"  {step}" for step in draft.to_do), f"then: manage.py operators check {target}"]))

    def _write(self, target: Path, text: str) -> None:
        try:
            with target.open("x") as file:
                file.write(text)
        except FileExistsError as error:
            raise Refused(f"{target} is there already: remove it, or name another file with --out") from error
        except OSError as error:
            raise Refused(f"{target}: {error.strerror}") from error

    def _draft(self, path: Path, name: str, options: dict[str, Any]) -> Draft:
        if is_expression(options["call"]):
            return draft_of_call(path, name, options["call"], options["dtype"], options["reference"])
        recording = Path(options["call"])
        calls = read_calls(recording) if options["call"] else []
        kernel = _choose(read_file(path), name, calls, path)
        kernel = with_real_configs(path, kernel)
        mine = [call for call in calls if call.kernel == kernel.name]
        if calls and not mine:
            raise Refused(f"{recording.name} holds no launch of {kernel.name}, but of "
                          f"{', '.join(sorted({call.kernel for call in calls}))}")
        return write_adapter(kernel, module_of(path.stem), mine[-1] if mine else None)

    def _change(self, do: str, package: str) -> None:
        if do == "enable":
            try:
                row = services.package_enable(package, by=None)
            except Refused as refused:
                raise CommandError(str(refused)) from refused
            self.stdout.write(f"{row.name}: enabled; a worker that has it describes it")
            return
        installed = OperatorPackage.objects.filter(name=normal_name(package)).first()
        if installed is None:
            raise CommandError(f"no package is named {package!r} here: an owner enables it first")
        if do == "disable":
            services.package_disable(installed, by=None)
            self.stdout.write(f"{installed.name}: disabled")
            return
        try:
            services.package_describe(installed)
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        self.stdout.write(f"{installed.name}: a worker that has it describes it anew")

    def _list(self, as_json: bool) -> None:
        packages = selectors.package_list()
        owner = {operator["name"]: package.name for package in packages for operator in package.operators}
        if as_json:
            self.stdout.write(json.dumps({
                "operators": [selectors.operator_json(operator, owner.get(name, "")) for name, operator in all_operators().items()],
                "packages": [selectors.package_json(package) for package in packages]}))
            return
        for name, operator in all_operators().items():
            dims = " ".join(dim.name for dim in operator.dims)
            self.stdout.write(f"{name:24} {dims:20} {' '.join(operator.dtypes):20} {owner.get(name, 'built in')}")
        for package in packages:
            problem = f": {package.error['what']}" if package.error else ""
            self.stdout.write(f"package {package.name}: {'enabled' if package.enabled else 'disabled'}, {package.status}{problem}")


def split_name(what: str) -> tuple[Path, str]:
    """Return file and kernel of FILE.py[:NAME]."""
    path, colon, name = what.rpartition(":")
    return (Path(path), name) if colon and name.isidentifier() else (Path(what), "")


def read_shape(text: str) -> dict[str, int]:
    """Return the numbers of "M=4096,N=4096". Raises Refused."""
    shape: dict[str, int] = {}
    for part in filter(None, text.replace(" ", ",").split(",")):
        name, _, value = part.partition("=")
        if not name.isidentifier() or not value.isdecimal() or len(value) > 12:
            raise Refused(f"--shape {part}: expected NAME=NUMBER")
        shape[name] = int(value)
    return shape


def _choose(kernels: Sequence[Kernel], name: str, calls: Sequence[Call], path: Path) -> Kernel:
    """Return the kernel that is meant: the one named, the one that was recorded, or the only one."""
    written = [kernel for kernel in kernels if kernel.kind in ("triton.jit", "triton.autotune")]
    recorded = {call.kernel for call in calls}
    chosen = [kernel for kernel in written if (kernel.name == name if name else kernel.name in recorded)]
    chosen = chosen or ([] if name else written)
    if len(chosen) != 1:
        raise Refused(f"{path.name} holds {f'no kernel {name}' if name else f'{len(chosen)} kernels'}: name one of "
                      f"{', '.join(kernel.name for kernel in written) or 'none'} as {path.name}:NAME")
    return chosen[0]
