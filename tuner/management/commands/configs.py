"""The config cache from the command line: what is in it, what a launch gets and why, files in and out, measuring again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from tuner.cache.entries import portability_selectors, selectors
from tuner.cache.entries.bans import read_bans
from tuner.cache.exchange import export_selectors, services
from tuner.cache.formats import FORMATS
from tuner.cache.formats.document import FormatError
from tuner.models import TuneJob
from tuner.revalidation import selectors as revalidation_selectors
from tuner.revalidation import services as revalidation_services
from tuner.texts import line_text, paste_text
from tuner.tuning import operators
from webapp.management.in_project import ProjectCommand, make_actions


class Command(ProjectCommand):
    help = "The config cache: list, best, why, import, export, revalidate, portability, buckets."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        action = make_actions(parser)
        listed = action("list", "entries, by filter")
        for name in ("operator", "gpu", "dtype", "state", "origin"):
            listed.add_argument(f"--{name}", default="")
        for name, help in (("best", "the configuration that a launch gets"), ("why", "the same, with every entry considered")):
            subparser = action(name, help)
            subparser.add_argument("operator")
            subparser.add_argument("shape", nargs="+", metavar="M=4096")
            subparser.add_argument("--gpu", required=True)
            for option in ("dtype", "toolkit", "driver", "policy"):
                subparser.add_argument(f"--{option}", default="")
            subparser.add_argument("--verified", action="store_true", help="only what a tune job here proved")
            subparser.add_argument("--recorded", action="store_true", help="recordings too")
        brought = action("import", "a file of another project")
        brought.add_argument("file", type=Path)
        brought.add_argument("--format", default="", choices=["", *FORMATS])
        for name in ("operator", "dtype", "gpu", "toolkit"):
            brought.add_argument(f"--{name}", default="")
        brought.add_argument("--shape", default="", metavar="K=4096", help="dimensions that the file does not say")
        export_parser = action("export", "entries, or the trials of a job, as another project's files")
        export_parser.add_argument("format", choices=export_selectors.EXPORTS)
        export_parser.add_argument("--job", type=int, help="trials of this job (t4, kernel-tuner)")
        for name in ("operator", "gpu", "dtype", "state", "K", "topk"):
            export_parser.add_argument(f"--{name}", default="")
        export_parser.add_argument("--recorded", action="store_true", help="recordings too")
        export_parser.add_argument("--out", type=Path, default=Path("."), metavar="FOLDER")
        again = action("revalidate", "measure unverified entries again, and what came of it")
        again.add_argument("--most", type=int, default=20)
        matrix = action("portability", "what a winner is worth on another GPU or under another toolkit")
        matrix.add_argument("--operator", default="")
        rounding = action("buckets", "how an operator's shapes are rounded, and what that costs")
        rounding.add_argument("operator")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            answer, text = getattr(self, f"_{options['action']}")(options)
        except FormatError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(answer, default=str) if options["json"] else text)

    def _list(self, options: dict[str, Any]) -> tuple[Any, str]:
        bans = read_bans()
        rows = [selectors.config_json(row, bans) for row in selectors.config_filter(options)]
        lines = [f"{row['id']:5}  {row['operator']}  {row['dtype']}  {row['shape_bucket']}  {row['gpu']}  {row['state']}  "
                 f"{row['origin']}{'  recorded' * bool(row['recorded'])}  "
                 + line_text(row["operator"], row["config"])
                 for row in rows]
        return {"configs": rows}, "\n".join(lines) or "The cache is empty."

    def _best(self, options: dict[str, Any], why: bool = False) -> tuple[Any, str]:
        operator = operators.find(options["operator"])
        if operator is None:
            raise CommandError(f"no operator {options['operator']}; there are {', '.join(operators.all_operators())}")
        shape, dtype = _parse_shape(" ".join(options["shape"])), options["dtype"] or operator.dtypes[0]
        problems = operator.problems(shape, dtype)
        if problems:
            raise CommandError("; ".join(problems.values()))
        answer = selectors.config_best(operator.name, dtype, options["gpu"], shape, options["toolkit"], why=why,
                                       driver=options["driver"], policy=options["policy"], verified=options["verified"],
                                       recorded=options["recorded"])
        loss = portability_selectors.expected_loss_text(answer)
        state = f" ({answer['entry']['recorded'] or answer['entry']['state']})" if answer["entry"] else ""
        lines = [f"{answer['rule']}: {answer['why']}{state}", paste_text(operator.name, answer["config"]), f"expected loss: {loss}"]
        for entry in answer.get("considered", []):
            outcome = "serves" if entry["serves"] else entry["rule"] or f"no: {entry['refused']}"
            state = "recorded" if entry["recorded"] else entry["state"]
            lines.append(f"  entry {entry['id']}  {entry['bucket']}  {entry['gpu']}  {entry['toolkit']}  {state}  {outcome}")
        return answer, "\n".join(lines)

    def _why(self, options: dict[str, Any]) -> tuple[Any, str]:
        return self._best(options, why=True)

    def _import(self, options: dict[str, Any]) -> tuple[Any, str]:
        path: Path = options["file"]
        try:
            if path.stat().st_size > services.MAX_BYTES:
                raise CommandError(f"{path}: holds more than {services.MAX_BYTES // 2**20} MiB")
            data = path.read_bytes()
        except OSError as error:
            raise CommandError(f"{path}: cannot be read: {error.strerror}") from error
        shape = _parse_shape(options["shape"]) if options["shape"] else {}
        hints = services.Hints(options["operator"], options["dtype"], options["gpu"], options["toolkit"], shape)
        name = "/".join(path.absolute().parts[-2:]) if path.parent.name.startswith("triton_") else path.name
        file = services.import_file(owner=None, name=name, data=data, format=options["format"], hints=hints)
        refused = "".join(f"\n  not used: {count} × {why}" for why, count in file.refused.items())
        waits = "" if not services.untimed_configs(file) else "\n  no times: import it on the page to measure them in a job"
        return ({"id": file.pk, "format": file.format, "entries": file.entries, "held": file.n_trials, "refused": file.refused},
                f"{file.name}: {FORMATS[file.format].title}, {file.n_trials} held, {file.entries} "
                f"entr{'y' if file.entries == 1 else 'ies'}{refused}{waits}")

    def _export(self, options: dict[str, Any]) -> tuple[Any, str]:
        if options["job"] is not None:
            job = TuneJob.objects.filter(pk=options["job"]).first()
            if job is None:
                raise CommandError(f"there is no tune job {options['job']}")
            done = export_selectors.export_trials(options["format"], job)
        else:
            names = ("operator", "gpu", "dtype", "state", "K", "topk")
            done = export_selectors.export_entries(options["format"], {name: options[name] for name in names},
                                                   recorded=options["recorded"])
        for path, text in done.files.items():
            target = options["out"] / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        left = "".join(f"\n  left out: {count} × {why}" for why, count in done.left_out.items())
        lines = [path + "  unverified: never measured here" * (path in done.unverified) for path in done.files]
        answer = {"files": list(done.files), "unverified": list(done.unverified), "left_out": dict(done.left_out)}
        return answer, "\n".join(lines) + left

    def _revalidate(self, options: dict[str, Any]) -> tuple[Any, str]:
        waiting = revalidation_selectors.waiting_entries()
        jobs = revalidation_services.revalidate(waiting[:options["most"]], None)
        number = sum(len(revalidation_selectors.entry_ids(job)) for job in jobs)
        lines = [f"{number} of {len(waiting)} unverified winner{'s' * (len(waiting) != 1)} queued to be measured again" if waiting
                 else "nothing to queue: no winner is unverified that can be measured again and is not being measured"]
        rows = revalidation_selectors.job_lines(revalidation_selectors.recent_jobs(10))
        lines += [f"  job {row['job'].pk}: {row['job'].status}, {row['says']}" for row in rows]
        return {"jobs": [job.pk for job in jobs], "entries": number}, "\n".join(lines)

    def _portability(self, options: dict[str, Any]) -> tuple[Any, str]:
        matrices = portability_selectors.matrices(options["operator"])
        cells = [cell for axis in ("gpu", "toolkit") for row in matrices[axis]["rows"] for cell in row["cells"]]
        lines = [f"{cell['source']} -> {cell['target']}: {cell['efficiency_pct']:.1f} % of the best known there "
                 f"({cell['known']} of {cell['shapes']} shapes)" for cell in cells if cell["efficiency"] is not None]
        return matrices, "\n".join(lines) or "No two places tried the same operator, type and shape."

    def _buckets(self, options: dict[str, Any]) -> tuple[Any, str]:
        report = portability_selectors.bucket_report(options["operator"])
        lines = [report["text"]]
        for choice in report["choices"]:
            is_known = choice["efficiency"] is not None
            cost = f"reaches {choice['efficiency_pct']:.1f} %, worst {choice['worst_pct']:.1f} %" if is_known else "not measured"
            lines.append(f"  nearest {choice['word']}{' (now)' if choice['now'] else ''}: {cost} ({choice['known']} pairs)")
        return report, "\n".join(lines)


def _parse_shape(text: str) -> dict[str, int]:
    shape = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition("=")
        if not name.isidentifier() or not value.isdecimal() or len(value) > 10:
            raise CommandError(f'"{part[:40]}" is not understood; write it like M=4096 N=4096 K=4096')
        shape[name] = int(value)
    return shape


