import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

FOLDER = Path(__file__).parents[2] / "data/h200/landscapes"


def replay(capsys, *arguments, as_json=True):
    call_command("replay", *map(str, arguments), *(["--json"] if as_json else []))
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out) if as_json else captured.out


def test_output_is_one_document_with_exactly_the_agreed_keys(capsys):
    result = replay(capsys, FOLDER / "attention.json.gz", "--shape", 1, "--trials", 60)
    assert list(result) == ["strategy", "trials", "winner"]
    assert result["strategy"] == "default"
    assert len(result["trials"]) == 60
    assert all(list(trial) == ["config", "outcome", "reason", "median_ms"] for trial in result["trials"])
    measured = [t for t in result["trials"] if t["outcome"] == "measured"]
    rejected = [t for t in result["trials"] if t["outcome"] == "rejected"]
    assert measured and rejected and len(measured) + len(rejected) == 60
    assert {t["reason"] for t in rejected} == {"resources"}
    assert all(t["median_ms"] is None for t in rejected) and all(t["reason"] is None for t in measured)
    assert result["winner"] == {k: min(measured, key=lambda t: t["median_ms"])[k] for k in ("config", "median_ms")}


def test_without_a_limit_exhaustive_finds_the_recorded_best(capsys):
    result = replay(capsys, FOLDER / "softmax.json.gz", "--shape", 0, "--strategy", "exhaustive")
    assert len(result["trials"]) == 144
    assert result["winner"]["config"] == {"STEPS": 3, "PER_SM": 32, "num_warps": 8}


def test_same_seed_same_document(capsys):
    runs = [replay(capsys, FOLDER / "matmul.json.gz", "--shape", 2, "--seed", 5, "--trials", 30) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != replay(capsys, FOLDER / "matmul.json.gz", "--shape", 2, "--seed", 6, "--trials", 30)


def test_history_seeds_the_search_with_the_winners_of_other_shapes(capsys):
    path = FOLDER / "matmul.json.gz"
    result = replay(capsys, path, "--shape", 0, "--strategy", "local", "--trials", 8, "--history", f"{path}:2", f"{path}:3")
    best_of_the_first = {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}
    assert result["trials"][1]["config"] == best_of_the_first


def test_a_table_for_people(capsys):
    out = replay(capsys, FOLDER / "layernorm.json.gz", "--shape", 0, "--trials", 3, as_json=False)
    assert "winner" in out and len(out.splitlines()) == 4


@pytest.mark.parametrize(("arguments", "says"), [
    (["missing.json.gz", "--shape", "0"], "cannot be read"),
    ([FOLDER / "matmul.json.gz", "--shape", "4"], "there is no shape 4"),
    ([FOLDER / "matmul.json.gz", "--shape", "0", "--history", "nothing"], "give LANDSCAPE.json.gz:SHAPE"),
    ([FOLDER / "matmul.json.gz", "--shape", "0", "--trials", "0"], "1 or more"),
    ([FOLDER / "matmul.json.gz", "--shape", "0", "--strategy", "magic"], "invalid choice"),
])
def test_errors_say_what_is_wrong(arguments, says):
    with pytest.raises(CommandError, match=says):
        call_command("replay", *map(str, arguments))
