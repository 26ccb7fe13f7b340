"""The step of two traces side by side: page and API say the same, parts add up, and what was foretold stands beside what came."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.test import Client

from profiles.analysis.trace.needed import facts
from profiles.compare import frame_selectors, operation_selectors
from profiles.models import Profile
from profiles.topics.services import document_of
from profiles.topics.table import topic_of
from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.needed.natural import DATA
from tests.profiles.pages.test_pages import page, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]


def ingested(file: str, needed: bool = True) -> Profile:
    made = profile_create(owner=None, file=ContentFile((DATA / file).read_bytes(), name=file.rpartition("/")[2]))
    profile = profile_ingest(made.pk, "test")
    if needed:
        document_of(profile, topic_of("needed"))    # as a worker does behind the ingest
    return profile


def command(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_what_went_is_said_with_what_was_foretold(bob):
    old, new = ingested("recorded/logits_of_all_tokens.json.gz"), ingested("natural/logits_of_all_tokens__without.json.gz")
    client = Client()
    client.force_login(bob)
    step = client.get("/api/compare/", {"a": old.pk, "b": new.pk}).json()["step"]
    assert sum(part["old_ns"] for part in step["parts"]) == pytest.approx(step["old_ns"], abs=1)
    assert sum(part["delta_ns"] for part in step["parts"]) == pytest.approx(step["delta_ns"], abs=1)
    assert step["old_range_ns"][0] <= step["old_ns"] <= step["old_range_ns"][1] and step["old_steps"] == step["new_steps"] == 3
    gone = step["foretold"]
    assert [each["kind"] for each in gone] == ["unread_logits"] and not gone[0]["came"]
    assert gone[0]["most_ns"] == pytest.approx(-step["delta_ns"], rel=0.25)         # foretold 10.4, was 11.3 ms in the traces
    plain = text(page(bob, "/compare/", a=old.pk, b=new.pk))
    assert "A step takes 28.4 ms" in plain and "Gone: logits that nobody reads, of which 10.2 ms to 10.4 ms were foretold" in plain
    back = text(page(bob, "/compare/", a=new.pk, b=old.pk))
    assert "New: logits that nobody reads, 10.2 ms to 10.4 ms to win" in back


@pytest.mark.parametrize(("limits", "said"), [
    ((facts, operation_selectors, "MOST_LAUNCHES"), "of more than 50 operations and a step's parts are not told apart."),
    ((frame_selectors, operation_selectors, "MOST_SLICES"), "of more than 50 steps, operations and shapes are not told apart.")])
def test_a_trace_that_is_too_large_for_operations_is_named(bob, monkeypatch, limits, said):
    old, new = ingested("h200/kineto_train.json.gz", needed=False), ingested("h200/kineto_layer.json.gz", needed=False)
    *modules, name = limits
    for module in modules:
        monkeypatch.setattr(module, name, 50)
    client = Client()
    client.force_login(bob)
    body = client.get("/api/compare/", {"a": old.pk, "b": new.pk}).json()
    notes = [note for note in body["notes"] if note.endswith(said)]
    assert [note.partition(" has ")[0] for note in notes] == [old.name, new.name] and body["operations"] == []
    markup = page(bob, "/compare/", a=old.pk, b=new.pk)
    assert all(note in text(markup) for note in notes) and 'id="operations"' not in markup


def test_what_is_not_made_yet_is_named(bob):
    old = ingested("natural/keys_repeated_decode_compiled.json.gz")
    new = ingested("natural/keys_repeated_decode_eager.json.gz", needed=False)
    plain = text(page(bob, "/compare/", a=old.pk, b=new.pk))
    assert "Steps are compared once what they need is made: keys_repeated_decode_eager.json.gz" in plain
    page(bob, f"/profiles/{new.pk}/analysis/needed/")
    assert "A step takes" in text(page(bob, "/compare/", a=old.pk, b=new.pk))


def test_operations_stand_before_kernels_and_add_up_to_them(bob):
    old, new = ingested("natural/scores_written_out.json.gz"), ingested("natural/scores_written_out__without.json.gz")
    client = Client()
    client.force_login(bob)
    body = client.get("/api/compare/", {"a": old.pk, "b": new.pk, "per": "step"}).json()
    kinds = {row["kind"]: row for row in body["operations"]}
    for which in ("old", "new"):
        assert sum(row[which]["ns"] for row in kinds.values()) == pytest.approx(body[f"{which}_total_ns"], abs=1)
        assert sum(row[f"{which}_total_ns"] for row in body["rows"]) == pytest.approx(body[f"{which}_total_ns"], abs=1)
    attention = kinds["attention"]
    assert (attention["old"]["launches"], attention["new"]["launches"], attention["verdict"]) == (22, 2, "less_work")
    assert attention["says"] == "FLOP −50 %, bytes −99 %" and body["kernel_verdicts"]["slower"] == 0
    # in all it is the kernel time of both sides as their Kernels and Time pages have it
    whole = client.get("/api/compare/", {"a": old.pk, "b": new.pk}).json()
    for which, profile in (("old", old), ("new", new)):
        time = client.get(f"/api/profiles/{profile.pk}/analysis/layer/").json()["numbers"]
        assert sum(row[which]["ns"] for row in whole["operations"]) == whole[f"{which}_total_ns"] == time["kernels_ns"]
    plain = text(page(bob, "/compare/", a=old.pk, b=new.pk, per="step"))
    assert "Attention 13.3 ms → 551 µs (less work)" in plain
    assert plain.index("A step takes") < plain.index("Operations") < plain.index("Kernel time", plain.index("Operations"))
    said = command("compare", str(old.pk), str(new.pk), "--per", "step")
    assert "▲" not in said and "A step takes" in said
    line = next(line for line in said.splitlines() if line.startswith("Attention"))
    assert "13.3 ms →     551 µs" in line and "22 → 2 launches  less work; FLOP −50 %, bytes −99 %" in line


def test_builds_are_compared_by_operations_too(bob):
    for file, build in (("natural/more/scores_in_vit.json.gz", "eager"), ("natural/more/scores_in_vit__without.json.gz", "sdpa")):
        made = ingested(file, needed=False)
        Profile.objects.filter(pk=made.pk).update(build=build)
    plain = text(page(bob, "/compare/", build_a="eager", build_b="sdpa"))
    assert "Attention 60.2 ms → 3.57 ms (same work, faster)" in plain


def test_a_profiles_grade_is_what_its_work_needs(bob):
    """List, API and the analysis say one number; a trace without shapes has none, and what is withheld takes it away."""
    known, unknown = ingested("h200/kineto_layer.json.gz"), ingested("natural/keys_repeated_decode_graph.json.gz")
    client = Client()
    client.force_login(bob)
    rows = {row["id"]: row["needed_pct"] for row in client.get("/api/profiles/").json()["results"]}
    numbers = client.get(f"/api/profiles/{known.pk}/analysis/needed/").json()["numbers"]
    gpu, = numbers["gpus"]
    assert rows[known.pk] == numbers["needed_pct"] == pytest.approx(100 * gpu["parts"]["needed"] / gpu["wall_ns"])
    assert rows[unknown.pk] is None and 45 < rows[known.pk] < 50
    assert f"{rows[known.pk]:.1f} %" in text(page(bob, "/profiles/"))


def test_queries_read_what_steps_need(bob, settings, tmp_path):
    """The tables of the analysis say what page and API say; a profile whose least time is not known has NULL, not 0."""
    from profiles.exports.files import rows
    from profiles.sql.services import query_run

    settings.HOME = tmp_path
    known, unknown = ingested("h200/kineto_layer.json.gz"), ingested("natural/keys_repeated_decode_graph.json.gz")
    client = Client()
    client.force_login(bob)
    numbers = {pk: client.get(f"/api/profiles/{pk}/analysis/needed/").json()["numbers"] for pk in (known.pk, unknown.pk)}

    def asked(sql: str) -> list[list]:
        both = list(Profile.objects.filter(pk__in=(known.pk, unknown.pk)))
        return rows(query_run(sql, both, "bob").table)

    grade = numbers[known.pk]["needed_pct"]
    assert asked("SELECT id, needed_pct FROM profiles ORDER BY id") == [[known.pk, grade], [unknown.pk, None]]
    parts = asked("SELECT profile, sum(total_ns) = any_value(wall_ns), any_value(needed_pct) FROM needed GROUP BY 1 ORDER BY 1")
    assert parts == [[known.pk, True, pytest.approx(grade)], [unknown.pk, True, None]]
    assert asked(f"SELECT kind, gone_ns FROM avoidable WHERE profile = {unknown.pk}") == [
        [kind["kind"], kind["gone_ns"]] for kind in numbers[unknown.pk]["kinds"]]
    first = numbers[known.pk]["slow"][0]
    assert asked("SELECT kernel, lost_ns, tuned FROM slow_kernels LIMIT 1") == [[first["kernel"], first["lost_ns"], "matmul"]]
    gpu, = numbers[known.pk]["gpus"]
    assert asked("SELECT sum(own_takes_ns), sum(own_least_ns) FROM needed_ranges") == [
        [gpu["wall_ns"] - gpu["parts"]["idle"], gpu["parts"]["needed"]]]
    assert asked("SELECT profile, sum(least_ns) FROM layer_parts GROUP BY 1 ORDER BY 1") == [
        [known.pk, gpu["parts"]["needed"]], [unknown.pk, None]]


def test_the_first_screen_says_what_to_change_and_where_to_tune(bob):
    """The answer, the line of code for it and the step as one bar stand before the kernels; slow kernels carry a tune job."""
    habit, plain = ingested("recorded/logits_of_all_tokens.json.gz"), ingested("natural/more/contiguous_for_nothing.json.gz")
    for profile in (habit, plain):
        document_of(profile, topic_of("causes"))
    markup = page(bob, f"/profiles/{habit.pk}/")
    first = text(markup[:markup.index('id="kernels"')])
    assert "Logits of 8,192 tokens are computed" in first and "model(ids, logits_to_keep=1)" in first
    assert "29.0 % needed of a step of 28.4 ms" in first and "logits that nobody reads 36.3 %" in first
    markup = page(bob, f"/profiles/{plain.pk}/")
    first = text(markup[:markup.index('id="kernels"')])
    assert "The kernels themselves are the limit" in first and "Tune it for these sizes, or try torch.compile" in first
    assert "/tune/new/?operator=matmul&amp;M=8192&amp;N=14336&amp;K=4096&amp;dtype=bf16" in markup
    needed = page(bob, f"/profiles/{plain.pk}/analysis/needed/")
    assert "?operator=matmul&amp;M=8192&amp;N=14336&amp;K=4096&amp;dtype=bf16" in needed


def test_least_times_stand_beside_the_times_of_modules(bob):
    """On the operators' page; a trace whose modules' work is not known says so, and one without modules has no such table."""
    modules = ingested("corpus/kineto/tracelens_h100_timesformer.json.gz")
    plain = ingested("natural/keys_repeated_decode_graph.json.gz")
    markup = page(bob, f"/profiles/{modules.pk}/analysis/operators/")
    client = Client()
    client.force_login(bob)
    ranges = client.get(f"/api/profiles/{modules.pk}/analysis/needed/").json()["numbers"]["ranges"]
    largest = max(ranges, key=lambda row: row["takes_ns"])
    assert "Least time by module" in markup and f'data-value="{largest["takes_ns"]}"' in markup
    assert f'data-value="{largest["least_ns"]}"' in markup and 0 < largest["least_ns"] < largest["takes_ns"]
    assert 'id="least"' not in page(bob, f"/profiles/{plain.pk}/analysis/operators/")
