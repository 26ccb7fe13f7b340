"""`manage.py gate` between two files: as a pipeline runs it, in a process of its own, with no server and no database."""

import gzip
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command, execute_from_command_line

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "tests" / "data" / "h200" / "timing_runs.jsonl.gz"


def written(path, runs, factor=1.0):
    """Recorded runs of both builds: identical code, one matmul of the candidate `factor` as long."""
    with gzip.open(RECORDED, "rt") as file:
        lines = [json.loads(text) for text in file]
    slowed = lines[0]["config"]
    chosen = [{**line, "us": [us * factor for us in line["us"]]} if line["config"] == slowed else line
              for line in lines if line["run"] in runs]
    path.write_text("".join(json.dumps(line) + "\n" for line in chosen))
    return str(path)


def called(*arguments, **options):
    """(exit code, what stands on standard output)"""
    from io import StringIO

    out = StringIO()
    with pytest.raises((SystemExit, CommandError)) as ended:
        call_command("gate", *arguments, stdout=out, **options)
    code = ended.value.returncode if isinstance(ended.value, CommandError) else ended.value.code
    return code, out.getvalue() or str(ended.value)


@pytest.fixture
def files(tmp_path):
    return written(tmp_path / "baseline.jsonl", range(1, 11)), written(tmp_path / "candidate.jsonl", range(11, 16)), \
        written(tmp_path / "slower.jsonl", range(11, 16), 1.08)


def test_in_a_process_of_its_own_without_servers(tmp_path, files):
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    environment |= {"RIDGEPOINT_HOME": str(tmp_path / "home"), "PYTHONIOENCODING": "ascii"}
    baseline, _, slower = files

    def run(*arguments):
        return subprocess.run([sys.executable, str(ROOT / "manage.py"), "gate", *arguments], capture_output=True, text=True,
                              env=environment, cwd=tmp_path, timeout=120)

    os.mkfifo(tmp_path / "pipe")            # gate --baseline <(…), on a terminal that knows no "→"
    with subprocess.Popen(["cp", slower, str(tmp_path / "pipe")]):
        piped = run("--baseline", baseline, "--candidate", str(tmp_path / "pipe"), "--json", "out.json")
    assert piped.returncode == 1 and piped.stdout.startswith("SLOWER") and not piped.stderr
    check_document((tmp_path / "out.json").read_text())
    assert not (tmp_path / "home" / "pg").exists(), "no database was started"
    environment |= {"DATABASE_URL": "postgresql://x@127.0.0.1:1/x", "REDIS_URL": "redis://127.0.0.1:1/0"}
    away = run("--suite", "serving", "--build", "b1")
    assert away.returncode == 3 and "Connection refused" in away.stderr, "Python's 1 would say SLOWER"


def check_document(text):
    document = json.loads(text)
    assert document["verdict"] == "SLOWER" and len(document["kernels"]) == 13
    first = document["kernels"][0]
    assert first["op"] == "matmul" and first["shape"] == {"M": 4096, "N": 4096, "K": 4096} and first["config"]["BN"] == 256
    assert first["ratio_p50"] == pytest.approx(1.08, abs=0.004) and first["ci"][0] < 1.08 < first["ci"][1]
    assert {each["verdict"] for each in document["kernels"][1:]} == {"PASS"}


def test_what_a_pipeline_reads(tmp_path, files, capsys):
    """As manage.py runs it, in this process: its exit code, and what stands on both outputs."""
    baseline, same, slower = files

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            execute_from_command_line(["manage.py", "gate", *arguments])
        return ended.value.code, *capsys.readouterr()

    code, out, err = run("--baseline", baseline, "--candidate", slower, "--json")
    assert code == 1 and not err
    check_document(out)
    code, _, err = run("--baseline", str(tmp_path / "none"), "--candidate", same)
    assert code == 3 and "No such file" in err and "Traceback" not in err
    assert run("--baseline", baseline, "--candidate", same, "--target", "x")[0] == 3


def test_exit_codes_and_the_table(tmp_path, files):
    baseline, same, _ = files
    code, said = called("--baseline", baseline, "--candidate", same)
    assert code == 0 and said.startswith("PASS: all 13 kernels")
    code, said = called("--baseline", baseline, "--candidate", written(tmp_path / "faster", range(16, 21), 0.9))
    assert code == 0 and said.startswith("FASTER")
    code, said = called("--baseline", baseline, "--candidate", written(tmp_path / "one", [11]))
    assert code == 2 and said.startswith("AMBIGUOUS")
    (tmp_path / "empty").write_text("")
    code, said = called("--baseline", str(tmp_path / "empty"), "--candidate", same)
    assert code == 2 and said.startswith("NO DATA") and "baseline has no runs" in said


def test_reports_for_a_pipeline(tmp_path, files):
    baseline, _, slower = files
    code, said = called("--baseline", baseline, "--candidate", slower, "--json", str(tmp_path / "out.json"),
                        "--markdown", str(tmp_path / "out.md"), "--junit", str(tmp_path / "out.xml"))
    assert code == 1 and said.startswith("SLOWER")
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "SLOWER"
    assert "SLOWER" in (tmp_path / "out.md").read_text()
    assert len(ET.parse(tmp_path / "out.xml").getroot().findall(".//failure")) == 1
    assert called("--baseline", baseline, "--candidate", slower, "--markdown", str(tmp_path / "no" / "such" / "folder"))[0] == 3


def test_limits_and_rules(tmp_path):
    def side(name, registers):
        lines = [{"run": at, "op": "k", "us": [100 + at / 10] * 30, "registers": registers} for at in range(6)]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
        return str(tmp_path / name)

    both = ("--baseline", side("b", 64), "--candidate", side("c", 96))
    assert called(*both)[0] == 0
    code, said = called(*both, "--limit", "registers.max_increase=0.25")
    assert code == 1 and "registers 64 → 96 (+50.0 %)" in said
    assert called(*both, "--limit", "registers.max_increase=0.25", "--limit", "spills.max=0")[0] == 1
    for wrong in ("registers=5", "registers.max=x", "registers.most=5", "registers.max=nan"):
        assert called(*both, "--limit", wrong)[0] == 3
    for name, value in (("target", "1"), ("alpha", "0"), ("alpha", "80"), ("beta", "60"), ("floor", "-1"), ("target", "nan")):
        assert called(*both, f"--{name}", value)[0] == 3, (name, value)


@pytest.mark.parametrize(("text", "says"), [
    ("{", "line 1"), ('{"run": 1, "op": "k", "us": [true]}', "us[0]"), ("[" * 50_000, "nested"),
    ('{"run": 1, "op": "k"}', "us: not there"), ('{"op": "k", "us": 5}', "run: not there"),
])
def test_a_file_that_cannot_be_read_is_an_error_with_its_place(tmp_path, files, text, says):
    (tmp_path / "bad").write_text(text)
    code, said = called("--baseline", files[0], "--candidate", str(tmp_path / "bad"))
    assert code == 3 and says in said


def test_samples_that_are_no_times_are_a_verdict(tmp_path):
    for name, values in (("b", np.linspace(10, 10.1, 8)), ("c", [float("nan")] * 6)):
        lines = [json.dumps({"run": at, "op": "k", "us": [value] * 5}) for at, value in enumerate(values)]
        (tmp_path / name).write_text("\n".join(lines))
    code, said = called("--baseline", str(tmp_path / "b"), "--candidate", str(tmp_path / "c"))
    assert code == 2 and "NO DATA" in said and "no times (the first: nan)" in said


def test_one_file_alone_is_wrong_use(files):
    assert called("--baseline", files[0])[0] == 3
    assert called("--candidate", files[0])[0] == 3
