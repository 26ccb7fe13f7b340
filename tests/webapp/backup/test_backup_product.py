"""A real installation is backed up while people upload and delete, and restored into an empty folder: nothing differs.

`make test` has what a restore refuses, of an installation at rest; the way there and back is that of tests/ways/test_backup.py, and
what is copied, kept and cleared that of test_backup_parts.py.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BUCKET
from tests.product import PROJECT, Product, clean_env, seed_database
from tests.webapp.backup.installation import PASSPHRASE, Visitor, differences, manage

pytestmark = [pytest.mark.process, pytest.mark.servers, pytest.mark.slow]

RECORDED = PROJECT / "tests" / "data" / "h200"
FILES = ("kineto_layer.json.gz", "buildA.ncu-rep.zst")
LISTS = ("/", "/profiles/", "/kernels/", "/tune/", "/gates/", "/suites/", "/builds/", "/cache/", "/environments/", "/captures/",
         "/ceilings/", "/regressions/", "/fleet/")
SEALED = {"RIDGEPOINT_BACKUP_PASSPHRASE": PASSPHRASE}


@dataclass
class Original:
    home: Path
    place: Path                             # of its backup
    profiles: list[dict[str, Any]]          # those that stay
    pages: dict[str, tuple[int, bytes]]
    told: dict[str, Any]                    # the backup's own words


def trace(number: int) -> bytes:
    """A small Kineto trace, another for each number."""
    events = [{"ph": "X", "cat": "kernel", "name": f"kernel_{number}_{i % 3}", "ts": 1000 + 20 * i, "dur": 10, "pid": 0, "tid": 7,
               "args": {"device": 0, "stream": 7, "correlation": i}} for i in range(200)]
    return gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode())


def rush(visitor: Visitor, stop: threading.Event, failures: list[BaseException]) -> None:
    """Upload and delete profiles: one is always coming and one going."""
    number, held = 0, list[int]()
    try:
        while not stop.is_set():
            held.append(visitor.upload(f"rush-{number}.json.gz", trace(number)))
            number += 1
            if len(held) > 2:
                visitor.delete(held.pop(0))
            stop.wait(0.3)
    except BaseException as error:
        failures.append(error)


def pages_of(profiles: list[dict[str, Any]]) -> list[str]:
    return [*LISTS, *(f"/profiles/{row['id']}/" for row in profiles)]


def tree(store: Path, profiles: list[dict[str, Any]]) -> dict[str, str]:
    """Return the digest of every object of these profiles, their uploads' too."""
    files = [path for row in profiles for path in sorted((store / "profiles" / str(row["id"])).rglob("*")) if path.is_file()]
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (*files, *sorted((store / "uploads").glob("*/*")))}
    theirs = {row["sha256"] for row in profiles}
    return {str(path.relative_to(store)): digest for path, digest in digests.items() if path in files or digest in theirs}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    home, place = tmp_path_factory.mktemp("original") / "home", tmp_path_factory.mktemp("place") / "backups"
    seed_database(home)
    product = Product(home, "--gpus", "0")
    try:
        product.wait_until_up()
        visitor = Visitor(product)
        for name in FILES:
            visitor.upload(name, (RECORDED / name).read_bytes())
        visitor.post("/examples/guard/")
        visitor.wait_until_ready()
        visitor.wait_for_workers()
        kept = visitor.profiles()
        assert {row["status"] for row in kept} == {"ready"} and len(kept) == len(FILES)
        wait_for_gates(visitor, product)
        visitor.wait_until_idle()
        stop, failures = threading.Event(), list[BaseException]()
        rushing = threading.Thread(target=rush, args=(Visitor(product), stop, failures))
        rushing.start()
        try:
            time.sleep(1.5)
            made = manage(home, "backup", str(place), "--json", **SEALED)
        finally:
            stop.set()
            rushing.join()
        assert made.returncode == 0 and not failures, (made.stderr, failures)
        for row in visitor.profiles():
            if row["name"].startswith("rush-"):
                visitor.delete(row["id"])
        visitor.wait_until_idle()                   # one that was being ingested when it was deleted takes its objects with it
        return Original(home, place, kept, {path: visitor.page(path) for path in pages_of(kept)}, json.loads(made.stdout))
    finally:
        product.stop()


def wait_for_gates(visitor: Visitor, product: Product) -> None:
    end = time.monotonic() + 120
    while True:
        told = visitor.session.get(f"{visitor.url}/api/gates/", timeout=60).text
        states = re.findall(r'"status": ?"(\w+)"', told)
        if states and set(states) == {"done"}:
            return
        assert time.monotonic() < end, f"{states}: {told[:3000]}\n{product.log[-6000:]}"
        time.sleep(0.5)


@dataclass
class Resting:
    home: Path
    place: Path                             # of its backup


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Resting:
    """An installation that nobody started since it was made, with two objects that are no row's."""
    home, place = tmp_path_factory.mktemp("resting") / "home", tmp_path_factory.mktemp("place") / "backups"
    seed_database(home)
    (home / "store" / "shared").mkdir(parents=True)
    for name in ("slices.parquet", "timeline.json"):
        (home / "store" / "shared" / name).write_bytes(name.encode() * 1000)
    made = manage(home, "backup", str(place), **SEALED)
    assert made.returncode == 0, made.stderr
    return Resting(home, place)


@pytest.fixture
def copied(original: Original, tmp_path: Path) -> Path:
    """The backup, to be harmed."""
    return Path(shutil.copytree(original.place, tmp_path / "copied"))


def listed(place: Path) -> list[dict[str, Any]]:
    """Return the objects of the newest backup."""
    with gzip.open(newest(place) / "objects.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


def newest(place: Path) -> Path:
    return max((place / "backups").iterdir())


@pytest.mark.deep_only          # the way that tests/ways/test_backup.py walks, while others upload and delete
def test_it_comes_back_as_it_was(original: Original, tmp_path: Path) -> None:
    restored = manage(original.home, "restore", str(original.place), "--to", str(tmp_path / "home"), **SEALED)
    assert restored.returncode == 0, restored.stderr
    home = tmp_path / "home"
    assert (home / "secret_key").read_text() == (original.home / "secret_key").read_text()
    assert not (home / "restore.unfinished").exists()
    before = tree(original.home / "store", original.profiles)
    assert before and tree(home / "store", original.profiles) == before
    product = Product(home, "--gpus", "0")
    try:
        product.wait_until_up()
        visitor = Visitor(product)
        visitor.wait_for_workers()
        visitor.wait_until_ready()                  # what was being ingested at that moment is taken up again
        rows = visitor.profiles()
        assert {row["id"] for row in original.profiles} <= {row["id"] for row in rows}
        rushed = [row for row in rows if row["name"].startswith("rush-")]
        assert rushed and len(rows) == len(rushed) + len(original.profiles)
        uploads = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (home / "store" / "uploads").glob("*/*")}
        for row in rushed:                          # no row without its object
            assert row["status"] == "ready", row
            assert row["sha256"] in uploads
            visitor.delete(row["id"])
        with_rows = {str(row["id"]) for row in rows}
        assert {folder.name for folder in (home / "store" / "profiles").iterdir()} <= with_rows      # and none without its row
        found: dict[str, list[str]] = {}
        for path, (status, text) in original.pages.items():
            now = visitor.page(path)
            assert status == now[0] == 200, (path, status, now[0])
            found[path] = differences(text, now[1])
        told = "\n".join(f"{path}: {line}" for path, lines in found.items() for line in lines)
        assert not told, told
    finally:
        product.stop()


@pytest.mark.deep_only          # test_keeping_the_newest_removes_what_only_older_ones_need, test_equal_bytes_lie_once
def test_a_second_backup_copies_only_what_is_new(original: Original, copied: Path) -> None:
    pool = {path.name for path in (copied / "objects").rglob("*") if path.is_file()}
    store = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (original.home / "store").rglob("*") if path.is_file()}
    new = {str(path.relative_to(original.home / "store")): digest for path, digest in store.items() if digest not in pool}
    again = manage(original.home, "backup", str(copied), "--json", "--keep", "1", **SEALED)
    told = json.loads(again.stdout)
    assert again.returncode == 0 and told["copied"] == 0 and told["objects"] > 10, (told, new)
    assert told["pruned"] == [original.told["name"]]
    assert [each.name for each in (copied / "backups").iterdir()] == [told["name"]]
    digests = {each["sha256"] for each in listed(copied)}       # what only the other needed is gone
    assert {path.name for path in (copied / "objects").rglob("*") if path.is_file()} == digests
    assert manage(original.home, "backup", str(copied), "--check").returncode == 0


def test_a_restore_refuses_data_and_a_wrong_passphrase(resting: Resting, tmp_path: Path) -> None:
    refused = manage(resting.home, "restore", str(resting.place), **SEALED)
    assert refused.returncode == 4 and "holds data (" in refused.stderr and "--replace" in refused.stderr
    wrong = manage(tmp_path, "restore", str(resting.place), RIDGEPOINT_BACKUP_PASSPHRASE="another long passphrase")
    assert wrong.returncode == 1 and "the passphrase is not the one" in wrong.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.deep_only          # of the passphrase: test_the_passphrase_comes_from_the_environment_or_a_file
def test_a_restore_refuses_what_is_half_said(original: Original, tmp_path: Path) -> None:
    shortened = manage(original.home, "restore", str(original.place), "--repl", **SEALED)
    assert shortened.returncode == 2 and "unrecognized arguments: --repl" in shortened.stderr
    none = manage(tmp_path, "restore", str(original.place))
    assert none.returncode == 1 and "RIDGEPOINT_BACKUP_PASSPHRASE" in none.stderr and "--without-keys" in none.stderr
    foreign = manage(tmp_path, "restore", str(original.place), "--to", str(tmp_path / "x"), DATABASE_URL="postgresql://x@127.0.0.1:1/x")
    assert foreign.returncode == 1 and "DATABASE_URL" in foreign.stderr
    assert not (tmp_path / "store").exists()


def test_a_restore_refuses_a_damaged_backup_and_changes_nothing(resting: Resting, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(resting.place, tmp_path / "copied"))
    lost = next(each for each in listed(copied) if each["key"].endswith(".parquet"))
    damaged = copied / "objects" / lost["sha256"][:2] / lost["sha256"]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    home = tmp_path / "home"
    refused = manage(home, "restore", str(copied), **SEALED)
    assert refused.returncode == 3 and lost["key"] in refused.stderr and "nothing was changed" in refused.stderr
    assert not (home / "store").exists() and not (home / "restore.unfinished").exists()
    skipped = manage(home, "restore", str(copied), "--skip-damaged", **SEALED)
    assert skipped.returncode == 0 and f"left out: {lost['key']}" in skipped.stderr
    assert not (home / "store" / lost["key"]).exists()


@pytest.fixture
def half_restored(original: Original, tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    process = subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), "restore", str(original.place)], cwd=PROJECT,
                               env=clean_env(home) | SEALED, stderr=subprocess.DEVNULL, start_new_session=True)
    kill_when((home / "restore.unfinished"), process)
    yield home


def kill_when(path: Path, process: subprocess.Popen[Any]) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.deep_only
def test_a_killed_restore_says_so_and_is_begun_anew(half_restored: Path, original: Original) -> None:
    refused = manage(half_restored, "serve", "--gpus", "0")
    assert refused.returncode == 1 and "has not ended" in refused.stderr and f"restore {original.place}" in refused.stderr
    again = manage(half_restored, "restore", str(original.place), **SEALED)
    assert again.returncode == 0, again.stderr
    assert tree(half_restored / "store", original.profiles) == tree(original.home / "store", original.profiles)
    assert manage(half_restored, "createowner", "eve", RIDGEPOINT_PASSWORD="a-long-enough-1").returncode == 0


@pytest.mark.deep_only          # test_half_a_source_leaves_nothing, test_an_unfinished_backup_of_today_in_a_bucket_is_left_alone
def test_a_killed_backup_is_no_backup_and_the_next_one_clears_it(original: Original, tmp_path: Path) -> None:
    place = tmp_path / "place"
    process = subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), "backup", str(place)], cwd=PROJECT,
                               env=clean_env(original.home), stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 120
    while not list(place.glob("objects/*/*")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = newest(place).name
    assert manage(original.home, "backup", str(place), "--list").stdout.split() == [killed, "unfinished"]
    checked = manage(original.home, "backup", str(place), "--check")
    assert checked.returncode == 1 and "no finished backup" in checked.stderr
    made = manage(original.home, "backup", str(place))
    assert made.returncode == 0 and "not in this backup: the secret key" in made.stderr
    assert [line.split()[1] for line in manage(original.home, "backup", str(place), "--list").stdout.splitlines()] == ["finished"]
    assert not list(place.glob(".fresh-*"))


@pytest.mark.deep_only
def test_to_a_bucket_and_back(original: Original, bucket: Any, tmp_path: Path) -> None:
    env = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")}
    env["AWS_ENDPOINT_URL_S3"] = bucket.meta.endpoint_url
    place = f"s3://{BUCKET}/nightly"
    made = manage(original.home, "backup", place, "--json", **env, **SEALED)
    assert made.returncode == 0, made.stderr
    again = manage(original.home, "backup", place, "--json", "--keep", "1", **env, **SEALED)
    assert again.returncode == 0 and json.loads(again.stdout)["copied"] == 0
    assert json.loads(again.stdout)["pruned"] == [json.loads(made.stdout)["name"]]
    checked = manage(original.home, "backup", place, "--check", **env)
    assert checked.returncode == 0 and "is whole" in checked.stdout, checked.stderr
    restored = manage(tmp_path, "restore", place, **env, **SEALED)
    assert restored.returncode == 0, restored.stderr
    assert tree(tmp_path / "store", original.profiles) == tree(original.home / "store", original.profiles)
    missing = next(row["Key"] for row in bucket.list_objects_v2(Bucket=BUCKET, Prefix="nightly/objects/")["Contents"])
    bucket.delete_object(Bucket=BUCKET, Key=missing)
    damaged = manage(original.home, "backup", place, "--check", **env)
    assert damaged.returncode == 3 and missing.rpartition("/")[2] in damaged.stdout and "missing" in damaged.stdout
