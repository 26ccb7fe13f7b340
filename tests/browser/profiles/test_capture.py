"""The capture form in a real browser, on a machine without a GPU: it shows everything and says why it cannot run."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import shows

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def address(browser: Any, server_url: str) -> str:
    """The form of a new capture of one of the bundled example programs."""
    with closing(browser.new_page()) as page:
        page.goto(f"{server_url}/captures/targets/")
        page.get_by_role("button", name="Add the example programs").click()
        page.goto(f"{server_url}/captures/new/?kernel=void%20at::native::softmax_warp%3C4%3E(int)")
        expect(page.locator('[name="target"]')).to_have_value("")   # which program launches it is not known: none is guessed
        choose(page, "Example: transformer layer")
        return str(page.url)


@pytest.fixture
def form(watched: Any, address: str) -> Any:
    watched.goto(address)
    return watched


def choose(form: Any, program: str) -> None:
    value = form.locator('[name="target"] option', has_text=program).get_attribute("value")
    form.select_option('[name="target"]', value)
    form.wait_for_url(f"**target={value}*", timeout=WAIT_MS)


def begin(form: Any, about: str, tool: str, program: str = "") -> None:
    """Choose what is looked at, a program and a tool; the form begins anew with each as long as nothing was typed."""
    form.locator(".capture-about label", has_text=about).click()
    form.wait_for_url("**about=*", timeout=WAIT_MS)
    if program and not form.locator('[name="target"] option:checked', has_text=program).count():
        choose(form, program)
    form.check(f'[name="tool"][value="{tool}"]')


def test_the_form_says_why_it_cannot_run_and_shows_what_would(form: Any) -> None:
    shows(form.locator("#capture-answer"), "No gpu worker is running")
    expect(form.locator("#capture-submit")).to_be_disabled()
    form.locator("#capture-command", has_text="--kernel-name regex:softmax_warp").wait_for(timeout=WAIT_MS)


def test_the_command_follows_the_fields(form: Any) -> None:
    form.fill('[name="ncu-launch_count"]', "3")
    form.select_option('[name="ncu-set"]', "basic")
    form.locator("#capture-command", has_text="--launch-count 3").wait_for(timeout=WAIT_MS)
    shows(form.locator("#capture-command"), "--set basic")
    form.locator("summary", has_text="Sections").click()
    form.check('[name="ncu-sections"][value="Occupancy"]')
    form.locator("#capture-command", has_text="--section Occupancy").wait_for(timeout=WAIT_MS)


def test_an_invalid_field_says_what_would_be_valid(form: Any) -> None:
    form.fill('[name="ncu-kernel"]', "mat(")
    error = form.locator('[data-field="kernel"] .field-error')
    error.wait_for(timeout=WAIT_MS)
    shows(error, "no regular expression")
    form.fill('[name="ncu-kernel"]', "matmul")
    error.wait_for(state="detached", timeout=WAIT_MS)


def test_the_other_tool_has_its_own_fields(form: Any) -> None:
    begin(form, "A step", "torch", "Example: transformer layer")
    form.fill('[name="torch-active"]', "5")
    form.locator("#capture-command", has_text="--active 5").wait_for(timeout=WAIT_MS)
    expect(form.locator('[name="ncu-kernel"]')).to_be_hidden()


def test_each_question_proposes_its_tools_and_what_was_typed_stays(form: Any) -> None:
    expect(form.locator('.capture-tool:has([value="torch"])')).to_be_hidden()
    form.fill('[name="build"]', "b7")
    form.locator(".capture-about label", has_text="A server").click()
    expect(form.locator('.capture-tool:has([value="torch"])')).to_be_visible()
    expect(form.locator('.capture-tool:has([value="ncu"])')).to_be_hidden()
    expect(form.locator("#capture-running")).to_be_visible()
    expect(form.locator('[name="build"]')).to_have_value("b7")


def test_nsight_systems_refuses_what_needs_another_option(form: Any) -> None:
    begin(form, "A step", "nsys")
    form.locator("#capture-command", has_text="--trace=cuda,nvtx,osrt").wait_for(timeout=WAIT_MS)
    shows(form.locator("#capture-slowdown"), "Expected: not measured with this program; a few percent slower")
    form.locator("summary", has_text="TensorRT-LLM").click()
    form.fill('[name="nsys-trtllm_steps"]', "100-150")
    shows(form.locator('[data-field="capture_range"] .field-error'), "choose cudaProfilerApi")
    form.select_option('[name="nsys-capture_range"]', "cudaProfilerApi")
    form.locator("#capture-command", has_text="TLLM_PROFILE_START_STOP=100-150 nsys profile").wait_for(timeout=WAIT_MS)


def test_a_job_of_several_processes_is_started_by_its_launcher(form: Any) -> None:
    begin(form, "A job of ranks", "torch", "Example: transformer layer")
    form.fill('[name="torch-processes"]', "4")
    form.locator("#capture-command", has_text="--nproc-per-node 4").wait_for(timeout=WAIT_MS)
    form.select_option('[name="torch-launcher"]', "program")
    shows(form.locator('[data-field="launcher"] .field-error'), "choose what starts them")
