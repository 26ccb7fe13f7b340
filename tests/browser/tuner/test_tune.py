"""The tuner's pages in a real browser: a job live, what is picked in its pictures, pause and resume, the queue by keys and drag."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.visit import eventually, poll

pytestmark = pytest.mark.browser
MATMUL = {"operator": "matmul", "dtype": "bf16", "device": "replay:matmul", "strategy": "random", "budget_seconds": 300}
SHAPE = {"M": 1024, "N": 1024, "K": 1024}


@pytest.fixture
def tuner(playwright: Any, server_url: str) -> Iterator[Any]:
    """POST to the API with the cookies that a browser would have; every job that was made is stopped at the end."""
    client = playwright.request.new_context(base_url=server_url)
    client.get("/tune/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    made: list[int] = []

    def post(path: str, **data: Any) -> Any:
        answer = client.post(path, headers={"X-CSRFToken": token, "Referer": server_url}, data=data)
        assert answer.ok, answer.text()
        if path == "/api/tune/":
            made.append(answer.json()["id"])
        return answer.json()

    post.get = lambda path: client.get(path).json()      # type: ignore[attr-defined]
    yield post
    for pk in made:
        post(f"/api/tune/{pk}/stop/")
    client.dispose()


# At each frame: how many trials the headline, the bar and the table say there are. Also how far what stands there was moved.
LOOK = r"""(() => {
  const found = window.found = { differ: [], seen: [], moved: 0 };
  const moved = (list) => { for (const entry of list.getEntries()) if (!entry.hadRecentInput) found.moved += entry.value; };
  new PerformanceObserver(moved).observe({ type: "layout-shift" });
  const number = (selector, words) => words.exec(document.querySelector(selector)?.innerText ?? "")?.[1];
  const look = () => {
    const bar = number("#tune-progress", /(\d+) of \d+ trials/) ?? number("#tune-progress", /(\d+) trials in/);
    const told = [number("#tune-answer", /, (\d+) trial/), bar, number("#trials .grid-count", /(\d+) row/)]
      .filter((each) => each !== undefined);
    if (new Set(told).size > 1) found.differ.push(told.join());
    if (told.length && found.seen.at(-1) !== told[0]) found.seen.push(told[0]);
    requestAnimationFrame(look);
  };
  look();
})()"""


def test_headline_bar_and_table_never_disagree_and_nothing_moves(watched: Any, server_url: str, tuner: Any) -> None:
    page, pk = watched, tuner("/api/tune/", **MATMUL, shape=SHAPE, budget_trials=602)["id"]
    page.goto(f"{server_url}/tune/{pk}/")
    poll(page, "document.querySelector('#trials .grid-count')")
    poll(page, "/, \\d+ trial/.test(document.querySelector('#tune-answer').innerText)")
    page.evaluate(LOOK)
    poll(page, "window.found.seen.length >= 6")
    page.get_by_role("button", name="Pause").click()
    poll(page, "/\\bPaused/.test(document.querySelector('#tune-answer').innerText)")
    assert page.inner_text("#tune-progress").startswith("paused") and page.is_visible("#resume") and not page.is_visible("#pause")
    page.wait_for_timeout(300)
    found = page.evaluate("window.found")
    assert found["differ"] == [] and found["moved"] < 0.05, found


def test_a_job_is_watched_and_its_fast_trials_are_found(watched: Any, server_url: str, tuner: Any) -> None:
    page, pk = watched, tuner("/api/tune/", **MATMUL, shape=SHAPE, budget_trials=40)["id"]
    page.goto(f"{server_url}/tune/{pk}/")
    poll(page, "document.querySelector('#progress-figure').dataset.points > 0")
    page.get_by_role("link", name="Parameters").click()
    poll(page, "document.querySelector('#parallel .pc-s0')?.getAttribute('d')")                 # lines while it runs
    poll(page, "location.search === '?tab=parameters'")
    poll(page, r"/\bFastest: /.test(document.querySelector('#tune-answer').innerText)", 60_000)
    outcome = tuner.get(f"/api/tune/{pk}/")["outcome"]
    assert page.inner_text("#tune-answer").lower().startswith((outcome["text"] or "fastest").lower())
    poll(page, "document.querySelectorAll('#slices figure').length >= 4 && document.querySelector('#tune-effects-part p')")
    trials = tuner.get(f"/api/tune/{pk}/trials/")["trials"]
    assert len(trials) == 40

    # with the keyboard: the first value of the first parameter
    page.locator("#parallel [role=button]").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    name, value = poll(page, "document.querySelector('#parallel [aria-pressed=true]')?.dataset.key").split("=")
    mine = [trial for trial in trials if str(trial["config"][name]) == value]
    assert mine
    poll(page, f"document.querySelector('#space-says').textContent.startsWith('{len(mine)} of 40 trials are picked')")
    poll(page, f"document.querySelector('#trials').textContent.includes('{len(mine)} row')")
    page.get_by_role("link", name="Trials").click()
    assert f"{len(mine)} of 40 trials are picked" in page.inner_text("#trials-picked")
    page.go_back()
    poll(page, f"location.search.includes('pick={name}')")

    # the same page from its address, then everything again
    page.reload()
    poll(page, f"document.querySelector('#space-says').textContent.startsWith('{len(mine)} of 40 trials are picked')")
    page.locator("#space-clear").click()
    poll(page, "!location.search.includes('pick=') && document.querySelector('#trials').textContent.includes('40 row')")

    # a pair of the heat map holds just the trials that the API has of it
    x, y = page.input_value("#heat-x"), page.input_value("#heat-y")
    page.locator("#heat td:not(.never) button").first.click()
    chosen = poll(page, "document.querySelector('#heat .picked button')?.getAttribute('aria-label')")
    pair = dict(part.split("=") for part in chosen.split(":")[0].split(" "))
    both = [trial for trial in trials if all(str(trial["config"][each]) == pair[each] for each in (x, y))]
    poll(page, f"document.querySelector('#space-says').textContent.startsWith('{len(both)} of 40')")


# What the page redraws of the parts that follow the job, and how many points its figure has now.
NOTE_REDRAWN = """(() => {
  window.redrawn = [];
  const outside = ({ target }) => {
    const part = target.closest ? target : target.parentElement;
    return part?.closest('[data-live]') && !part.closest('time');
  };
  const note = (list) => window.redrawn.push(...list.filter(outside).map(({ target }) => target.id || target.nodeName));
  const job = document.getElementById('tune-job');
  new MutationObserver(note).observe(job, { childList: true, characterData: true, subtree: true });
  return Number(document.querySelector('#progress-figure').dataset.points);
})()"""
DRAWN = """(() => {
  const plot = Bokeh.documents.map((each) => each.get_model_by_name('progress-plot')).find(Boolean);
  const of = (name) => plot.document.get_model_by_name(`progress-${name}`).data;
  return {
    kinds: ['measured', 'raced', 'failed', 'slower'].map((kind) => of(kind).trial.length), best: of('best').us.at(-1),
    labels: [...of('labels').text], high: plot.y_range.end,
  };
})()"""
LINEAR = "Bokeh.documents.some((each) => each.get_model_by_name('progress-plot')?.y_scale.type === 'LinearScale')"


def test_the_figure_of_a_running_job_is_fed_by_messages_alone(watched: Any, server_url: str, tuner: Any) -> None:
    """Of the snapshots the first is let through: what comes then came over the socket, and nothing else is drawn again."""
    page, pk = watched, tuner("/api/tune/", **MATMUL, shape=SHAPE, budget_trials=602)["id"]
    snapshots: list[Any] = []
    page.route("**/snapshot/**", lambda route: (snapshots.append(route), route.continue_() if len(snapshots) == 1 else None))
    page.goto(f"{server_url}/tune/{pk}/")
    points = "Number(document.querySelector('#progress-figure').dataset.points ?? 0)"
    poll(page, f"{points} > 0 && document.querySelector('#progress-figure canvas, #progress-figure .bk-Figure')")
    page.wait_for_timeout(1000)                                     # the table of the first snapshot is made behind it
    before = page.evaluate(NOTE_REDRAWN)
    poll(page, f"{points} >= {before} + 8")
    assert page.evaluate("window.redrawn") == []
    drawn = page.evaluate(DRAWN)
    assert sum(drawn["kinds"]) >= before + 8 and drawn["best"] < drawn["high"]
    assert any(label.startswith("best so far") for label in drawn["labels"])
    page.focus("#progress-figure")
    page.keyboard.press("End")
    assert page.inner_text("#progress-said").startswith("Trial ")
    page.get_by_role("button", name="linear").click()                # another figure of the same maker, with the same points
    poll(page, f"{LINEAR} && {points} > 8")


def test_the_form_is_checked_while_one_types_and_keeps_what_was_typed(watched: Any, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/tune/new/?operator=matmul&device=replay:matmul&M=1024&N=1024&K=1024")
    poll(page, "document.querySelector('#queue-state').textContent.length > 10")
    page.fill("[name=shape]", "M=77 N=1 K=1")
    poll(page, "document.querySelector('.field:has([name=shape]) .field-error')?.textContent.includes('not recorded')")
    assert page.get_attribute("[name=shape]", "aria-invalid") == "true"
    page.click("#start")                                            # nothing is sent, and the field has the focus
    assert page.url.endswith("K=1024") and page.evaluate("document.activeElement.name") == "shape"
    assert page.input_value("[name=shape]") == "M=77 N=1 K=1"
    page.locator("#presets button").first.click()
    poll(page, "!document.querySelector('.field-error') && !document.querySelector('[aria-invalid]')")
    page.select_option("[name=device]", "gpu")                      # no worker has a GPU here
    poll(page, "/^No living worker can take it/.test(document.querySelector('#queue-state').textContent)")
    assert page.inner_text("#start") == "Queue it anyway"


def test_the_space_is_edited_and_the_count_follows(watched: Any, server_url: str, tuner: Any) -> None:
    page, valid = watched, "document.querySelector('[data-space-valid]').textContent"
    page.goto(f"{server_url}/tune/new/?operator=matmul&device=replay:matmul&M=1024&N=1024&K=1024")
    poll(page, f"{valid} === '602'")
    assert page.is_hidden("[data-space-reset]") and "720 configurations can run" in page.inner_text("#tune-space header")
    page.click("#space-BM-256")
    poll(page, f"Number({valid}) < 602")
    assert page.get_attribute("#space-BM-256", "aria-pressed") == "false"
    assert page.evaluate("document.activeElement.id") == "space-BM-256"
    with page.expect_response(lambda answer: "/check/" in answer.url and "BN+%3C%3D" in (answer.request.post_data or "")):
        page.fill("#space-rules", "BN <= ")
    poll(page, f"{valid} === '—' && document.querySelector('.space-rules .space-wrong').textContent.includes('no expression')")
    page.click("#start")                                            # nothing is sent, the constraints have the focus
    assert "/tune/new/" in page.url and page.evaluate("document.activeElement.id") == "space-rules"
    page.fill("#space-rules", "BN <= 64")
    poll(page, "document.querySelector('[data-space-left] code')?.textContent === 'BN <= 64'")
    page.click("[data-space-reset]")
    poll(page, f"{valid} === '602' && document.querySelector('[name=space]').value === ''")
    page.click("#space-num_warps-2")
    page.fill("#space-rules", "BN <= 64")
    poll(page, "document.querySelector('#tune-space').dataset.counted.includes('num_warps')")
    page.check("[name=effort][value=none]")
    page.click("#start")
    page.wait_for_url("**/tune/*/")
    assert "space edited: num_warps 4, 8 (without 2); BN <= 64" in page.inner_text("#tune-chips")
    job = tuner.get(f"/api/tune/{page.url.rstrip('/').split('/')[-1]}/")
    assert job["space"]["parameters"] == {"num_warps": [4, 8]}


def test_a_space_that_nobody_listed_is_said_to_be_unknown(watched: Any, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/tune/new/?operator=cublaslt_matmul&device=gpu")
    poll(page, "document.querySelector('[data-space-fixed]').textContent.startsWith('Not known yet: a worker with the GPU lists')")
    assert page.inner_text("[data-space-valid]") == "—" and page.is_hidden("[data-space-gpu]")
    page.fill("#space-rules", "SPLIT_K < 4")
    poll(page, "document.querySelector('.space-rules .space-wrong').textContent.includes('nothing can be edited')")
    page.select_option("[name=operator]", "matmul")
    page.wait_for_selector("#space-BM-64")
    assert page.query_selector("#space-rules") is not None


@pytest.mark.deep_only          # tests/tuner/spaces/test_added.py, tests/js/tune/space_edit.test.js; edited here: two tests above
def test_values_are_added_to_an_operator_of_ours_and_refused_at_their_field(watched: Any, server_url: str, tuner: Any) -> None:
    page, valid = watched, "document.querySelector('[data-space-valid]').textContent"
    page.goto(f"{server_url}/tune/new/?operator=matmul&device=gpu&M=4096&N=4096&K=4096")
    poll(page, f"/[0-9]/.test({valid})")
    before = page.evaluate(valid)
    assert page.get_attribute("#space-add-BM", "title") == "powers of two from 16 to 65,536"
    assert page.query_selector("#space-add-KERNEL") is None, "a name of code cannot be added"
    page.fill("#space-add-BM", "48")
    page.press("#space-add-BM", "Enter")
    poll(page, "document.querySelector('[data-space-wrong=\"parameters.BM\"]').textContent.startsWith('48: its kernels are not')")
    assert page.evaluate(valid) == "—"
    page.click("#space-BM-48")                                      # it goes again
    poll(page, f"{valid} === '{before}' && document.querySelector('[data-space-wrong=\"parameters.BM\"]').hidden")
    page.fill("#space-add-BM", "512")
    page.press("#space-add-BM", "Enter")
    poll(page, "document.querySelector('#tune-space').dataset.counted.includes('512')")
    page.fill("#space-add-num_warps", "16")
    page.press("#space-add-num_warps", "Enter")
    poll(page, "document.querySelector('#tune-space').dataset.counted.includes('num_warps')")
    assert int(page.evaluate(valid).removeprefix("at least ").replace(",", "")) > int(before.replace(",", ""))
    page.click("#start")
    page.wait_for_url("**/tune/*/")
    assert "space edited: BM with 512; num_warps with 16" in page.inner_text("#tune-chips")
    job = tuner.get(f"/api/tune/{page.url.rstrip('/').split('/')[-1]}/")
    tuner(f"/api/tune/{job['id']}/stop/")                           # it would wait for a GPU, and in the next test's queue
    assert job["space"]["parameters"] == {"BM": [16, 32, 64, 128, 192, 256, 512], "num_warps": [2, 4, 8, 16]}


def test_the_queue_is_ordered_by_keys_and_by_drag_and_a_job_rests(watched: Any, server_url: str, tuner: Any) -> None:
    page = watched
    running = tuner("/api/tune/", **MATMUL, shape=SHAPE, budget_trials=602)["id"]
    waits = {**MATMUL, "device": "gpu", "shape": SHAPE}             # no worker has one: they wait, however long this test takes
    first, second, third = (tuner("/api/tune/", **waits, budget_trials=5 + at)["id"] for at in range(3))
    rows = "[...document.querySelectorAll('#queue li[draggable=true]')]"
    order = f"JSON.stringify({rows}.map((row) => Number(row.dataset.job)))"

    def stands(*wanted: int) -> None:
        poll(page, f"{order} === '{json.dumps(wanted, separators=(',', ':'))}'")
        eventually(lambda: [row["id"] for row in tuner.get("/api/tune/queue/")["queue"]] == list(wanted))   # not yet on answering

    def one_more(waiting: int) -> int:
        """Have another job wait; the page has read it on return, whether its queue shows it or not."""
        made = tuner("/api/tune/", **waits, budget_trials=9)["id"]
        poll(page, f"document.querySelector('#live-answer').textContent.includes(', {waiting} waiting')")
        return int(made)

    page.goto(f"{server_url}/tune/")
    poll(page, f"document.querySelector('#queue li[data-job=\"{running}\"] progress')")
    moves: list[Any] = []
    page.route("**/move/", lambda route: moves.append(route))       # a slow server: the page reads news before it answers
    page.locator(f"#queue li[data-job='{third}']").focus()
    page.keyboard.press("Alt+ArrowUp")
    eventually(lambda: page.evaluate("1") and moves)                # asking the page lets the route be told
    fourth = one_more(waiting=4)
    moves[0].continue_()
    poll(page, "document.querySelector('#queue-said').textContent.includes('now 2 of 3')")
    page.unroute("**/move/")
    stands(first, third, second, fourth)

    grip, target = page.locator(f"#queue li[data-job='{second}'] .grip"), page.locator(f"#queue li[data-job='{first}']")
    grip.hover()
    page.mouse.down()
    target.hover(position={"x": 60, "y": 2})                        # the drag has begun
    fifth = one_more(waiting=5)
    page.mouse.up()
    stands(second, first, third, fourth, fifth)
    tuner(f"/api/tune/{running}/stop/")

    rests = tuner("/api/tune/", **MATMUL, shape=SHAPE, budget_trials=602)["id"]
    page.goto(f"{server_url}/tune/{rests}/")
    page.get_by_role("button", name="Pause").click()
    poll(page, "/\\bPaused/.test(document.querySelector('#tune-answer').innerText)")
    rested = tuner.get(f"/api/tune/{rests}/")["trials"]
    page.get_by_role("button", name="Resume").click()
    poll(page, "/\\bBest so far/.test(document.querySelector('#tune-answer').innerText)")
    page.get_by_role("button", name="Stop").click()
    poll(page, "/\\bStopped/.test(document.querySelector('#tune-answer').innerText)")
    assert tuner.get(f"/api/tune/{rests}/")["trials"] >= rested


def test_two_jobs_are_chosen_from_a_searchable_list_by_keys(watched: Any, server_url: str, tuner: Any) -> None:
    page = watched
    random, local = (tuner("/api/tune/", **{**MATMUL, "strategy": each}, shape=SHAPE, budget_trials=3)["id"]
                     for each in ("random", "local"))
    for pk in (random, local):
        for _ in range(150):
            if tuner.get(f"/api/tune/{pk}/")["status"] == "done":
                break
            page.wait_for_timeout(400)
    page.goto(f"{server_url}/tune/compare/")
    first, second = page.get_by_role("combobox", name="First"), page.get_by_role("combobox", name="Second")
    first.focus()
    page.keyboard.press("ArrowDown")                                # without a word: the newest first
    poll(page, "document.querySelectorAll('[role=option]').length >= 2")
    assert first.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Escape")
    poll(page, "document.querySelector('[role=combobox]').getAttribute('aria-expanded') === 'false'")
    first.fill(f"{random} random")
    poll(page, "document.querySelectorAll('#combobox-1-list [role=option]').length === 1")
    assert first.get_attribute("aria-activedescendant") == "combobox-1-0"
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#job-a').value") == str(random)
    second.fill("nothing has this")
    poll(page, "document.querySelector('#combobox-2-list').textContent.includes('Nothing has')")
    page.keyboard.press("Tab")                                      # what is not in the list is not chosen
    assert second.input_value() == "" and page.evaluate("document.querySelector('#job-b').value") == ""
    second.fill(f"{local} local")
    poll(page, "document.querySelectorAll('#combobox-2-list [role=option]').length === 1")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(f"**/tune/compare/?a={random}&b={local}")
    assert "local" in page.inner_text("main")
