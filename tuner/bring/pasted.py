"""The process that checks a pasted kernel file: `python -m tuner.bring.pasted`, the request as JSON on standard input.

{"file": "add.py", "text": …, "folder": "", "siblings": {path: text}, "shape": {…}, "dtype": …, "compiles": true, "call": …}: behind
walls (workers.core.sandboxed), the file is imported, its call made and samples are compiled. With "compiles": false its text alone
is read; with "recorded" adapters are written of what another process told of the call. Each line of the answer is JSON:
{"progress": [done, of]} and {"step": what, "most_s": …} now and then, at the end {"operators": […], "adapters": […],
"proposals": […], "recorded": {…}} or {"refused": why}.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import edited
from tuner.bring.calls.adapting import names_of_reference, write_called
from tuner.bring.calls.expression import CallExpression, read_call
from tuner.bring.calls.found import found_of, read_recorded
from tuner.bring.calls.loading_places import package_of
from tuner.bring.calls.proposals import propose_calls
from tuner.bring.calls.received import read_record
from tuner.bring.calls.understand import Recorded
from tuner.bring.check import check_file, read_file
from tuner.bring.cuda.check import SUFFIXES, read_sources
from tuner.bring.cuda.found import drafts_of
from tuner.bring.cuda.found import found_of as found_of_cuda
from tuner.bring.cuda.proposals import propose_cuda_calls
from tuner.bring.cuda.write import file_beside, write_cuda_adapter
from tuner.bring.forked import bound_data
from tuner.bring.report import Found
from tuner.bring.source import OPERATORS, Kernel
from tuner.bring.travel.described import UNWRITTEN
from tuner.bring.travel.files import check_folder, lay_out, read_files
from tuner.bring.write import Draft, module_of, write_adapter
from tuner.tuning.team.description import MAX_CONFIGS

TEXT_S, TEXT_BYTES = 5, 1 << 30        # of reading a text alone
ADAPTER = "{}_ridgepoint.py"
MOST_ADAPTERS = 40
MOST_REFERENCES = 4


def main(arguments: Sequence[str] = ()) -> int:
    """Answer one request; return the exit status."""
    request = json.load(sys.stdin)
    if not request["compiles"]:
        resource.setrlimit(resource.RLIMIT_CPU, (TEXT_S, TEXT_S))
        bound_data(TEXT_BYTES)
    with os.fdopen(os.dup(1), "w") as answer, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.dup2(2, 1)                   # whatever prints is not read as an answer

        def say(line: dict[str, Any]) -> None:
            answer.write(json.dumps(line, default=str) + "\n")
            answer.flush()

        try:
            say(check_text(Path(folder), request, lambda done, of: say({"progress": [done, of]}),
                           lambda what, most_s: say({"step": what, "most_s": most_s})))
        except Refused as refused:
            say({"refused": str(refused).replace(f"{folder}/", "")})
    return 0


def check_text(folder: Path, request: dict[str, Any], say: Callable[[int, int], None],
               step: Callable[[str, float], None] = lambda what, most_s: None) -> dict[str, Any]:
    """Return what is found in the request's text, which is written into the folder. Raises Refused."""
    folder = folder.resolve()
    path = lay_out_request(folder, request)
    call = request.get("call", "")
    if "recorded" in request:
        return {"operators": [], "adapters": called_adapters(path, call, request["recorded"], folder, request["shape"])}
    recorded: dict[str, Any] = {}
    rows = check_file(path, "", request["shape"], request["dtype"], compiles=request["compiles"], say=say,
                      call=call if request["compiles"] else "", keep=recorded.update, step=step)
    answer = {"operators": [row.as_json() for row in rows], "adapters": [] if request["compiles"] else adapters_of(path, rows)}
    if not request["compiles"]:
        is_python = path.suffix == ".py"
        return {**answer, "proposals": propose_calls(request["text"]) if is_python else propose_cuda_calls(path, request["text"])}
    for launch in recorded.get("launches", ()):         # the folder is another one where the adapters are written
        launch["file"] = str(launch.get("file", "")).removeprefix(f"{folder}/")
    return {**answer, "recorded": recorded} if recorded else answer


def lay_out_request(folder: Path, request: Mapping[str, Any]) -> Path:
    """Write the request's files below the folder; return where the kernel's lies. Modules of the tree are found from its root."""
    siblings, below = read_files(request.get("siblings") or {}), check_folder(request.get("folder") or "")
    path: Path = folder / below / request["file"]
    lay_out(folder, {**siblings, str(path.relative_to(folder)): request["text"]})
    if siblings:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(folder))))
    return path


def called_adapters(path: Path, call: str, told: Any, root: Path | None = None, shape: Mapping[str, int] | None = None
                    ) -> list[dict[str, Any]]:
    """Return the adapter of each kernel of the text that a recorded call launches. Raises Refused for what is no record.

    root  where the files lie that came with the text: a kernel may stand in one of them
    """
    record, expression = read_record(told), read_call(call)
    if path.suffix in SUFFIXES:
        return _called_cuda(path, record, expression, shape or {})
    adapters: list[dict[str, Any]] = []
    launches = [{**launch, "file": str(_place_of(launch["file"], path, root))} for launch in record["launches"]]
    for entry, kernel in read_recorded(path, {**record, "launches": launches}):
        if kernel is None:
            adapters.append({"kernel": entry.name, "why": "it stands in another file: give that one"})
            continue
        finding, _ = found_of(entry, kernel, record, {}, 0)
        try:
            module = module_at(Path(entry.launch["file"]), path)
            draft = write_called(entry, kernel, record, expression, module)
        except Refused as refused:
            adapters.append({"kernel": kernel.name, "why": str(refused)})
            continue
        references = _references(path, entry, kernel, record, expression, module)
        adapters.append({"kernel": kernel.name, "file": ADAPTER.format(f"{path.stem}_{kernel.name}"[:80]), "text": draft.text,
                         "to_do": list(draft.to_do), "beside": None, "space": _space_of(draft.text, finding), "called": True,
                         "references": references, "configs": _listed(entry.configs)})
    return adapters[:MOST_ADAPTERS]


def _called_cuda(path: Path, record: dict[str, Any], call: CallExpression, macros: Mapping[str, int]) -> list[dict[str, Any]]:
    adapters: list[dict[str, Any]] = []
    for entry, source, draft in drafts_of(path, record, call, macros=macros)[:MOST_ADAPTERS]:
        if isinstance(draft, Refused):
            adapters.append({"kernel": entry.name, "why": str(draft)})
            continue
        finding, _ = found_of_cuda(entry, source, record, 0)
        adapters.append({"kernel": entry.name, "file": ADAPTER.format(f"{path.stem}_{entry.name}"[:80]), "text": draft.text,
                         "to_do": list(draft.to_do), "beside": None, "space": _space_of(draft.text, finding), "called": True,
                         "references": {}, "configs": None})
    return adapters


def _place_of(told: str, path: Path, root: Path | None) -> Path:
    """Return the file that a launch's kernel stands in: one of those that were given, else the kernel's own."""
    place = (root / told).resolve() if root is not None and told.endswith(".py") else path
    return place if root is not None and place.is_relative_to(root) and place.is_file() else path


def module_at(place: Path, path: Path) -> str:
    """Return the name by which an adapter imports a file, from the folder that `path` is imported from. Raises Refused."""
    root, names = package_of(path)
    place = place.resolve()
    if place == path.resolve():
        return ".".join(map(module_of, names))
    if not place.is_relative_to(root):
        raise Refused(f"{place.name} lies where {path.name} cannot import it from")
    return ".".join(map(module_of, place.relative_to(root).with_suffix("").parts))


def _references(path: Path, each: Recorded, kernel: Kernel, record: Any, expression: CallExpression, module: str) -> dict[str, str]:
    """Return name → adapter, for functions of the kernel's file that may say what is right and are called as the call is."""
    texts_by_name = {}
    for name in islice(names_of_reference(path.read_text()), MOST_REFERENCES) if module_at(path, path) == module else ():
        try:
            text = write_called(each, kernel, record, expression, module, name, path.read_text()).text
        except (Refused, AssertionError):
            continue
        if UNWRITTEN not in text:
            texts_by_name[name] = text
    return texts_by_name


def _listed(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return an autotuner's list as names and rows, whose order jsonb keeps; None where there is none, or it is uneven."""
    names = list(configs[0]) if configs else []
    if not names or any(sorted(names) != sorted(config) for config in configs):
        return None
    return {"names": names, "rows": [[config[name] for name in names] for config in configs[:MAX_CONFIGS]]}


def adapters_of(path: Path, findings: Sequence[Found]) -> list[dict[str, Any]]:
    """Return what `operators init` would write of each kernel, with the space that it states; {"kernel", "why"} where nothing."""
    sources = read_sources(path)
    adapters: list[dict[str, Any]] = []
    for finding in findings[:MOST_ADAPTERS]:
        if finding.kind in OPERATORS:
            continue                    # it is one
        beside = None
        try:
            if sources is None:
                kernel = next(candidate for candidate in read_file(path) if candidate.name == finding.name)
                draft = write_adapter(kernel, module_of(path.stem))
            else:
                draft, beside = _of_source(path, next(source for source in sources if source.function.name == finding.name))
        except Refused as refused:
            adapters.append({"kernel": finding.name, "why": str(refused)})
            continue
        name = ADAPTER.format(path.stem if len(findings) == 1 else f"{path.stem}_{finding.name}"[:80])
        adapters.append({"kernel": finding.name, "file": name, "text": draft.text, "to_do": list(draft.to_do), "beside": beside,
                         "space": _space_of(draft.text, finding)})
    return adapters


def _of_source(path: Path, source: Any) -> tuple[Draft, dict[str, str] | None]:
    file, text = file_beside(source, path)
    return write_cuda_adapter(source, file), None if text is None else {"file": file, "text": text}


def _space_of(adapter: str, finding: Found) -> dict[str, Any] | None:
    """Return the space that can be edited: the adapter's, else the autotuner's values; None where the text tells none."""
    space = edited.read_space(adapter)
    params = space.params or {parameter["name"]: parameter["values"] for parameter in finding.parameters}
    if not params:
        return None
    return {"params": [{"name": name, "values": list(values)} for name, values in params.items()],      # in their order, which
            "constraints": [{"reason": reason, "expression": rule} for reason, rule in space.constraints.items()],     # jsonb loses
            "default": space.default or finding.default, "names": space.names, "listed": not space.params}


if __name__ == "__main__":
    sys.exit(main())
