"""Bundles: few files, each module once, in the order of a browser; what is not understood is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from webapp.statics.bundler import BundleError, bundle

NODE = shutil.which("node")
SITE = {
    "js/lib/log.js": 'export const lines = [];\nexport function say(text) { lines.push(text); }\n',
    "js/lib/count.js": 'import { say } from "./log.js";\n\nsay("count runs");\n'
                       'export class Counter { n = 0; }\nexport const zero = 0;\n',
    "js/tune/shared.js": 'import { Counter as Many, zero } from "../lib/count.js";\n// import { nothing } from "./nowhere.js";\n'
                         'export const make = () => Object.assign(new Many(), { n: zero });\n',
    "js/tune/one.js": 'import * as log from "../lib/log.js";\nimport { make } from "./shared.js";\nimport "../lib/late.js";\n'
                      'log.say(`one ${make().n}`);\nglobalThis.answer = log.lines;\nawait null;\n',
    "js/tune/two.js": 'import { make } from "./shared.js";\nglobalThis.two = make();\n',
    "js/lib/late.js": 'import { say } from "./log.js";\nsay("late runs");\nexport async function* nothing() {}\n',
    "js/base/frame.js": 'import { lines, say } from "../lib/log.js";\nsay("frame");\n'
                        'const { add } = await import("../grid/sum.js");\nsay(String(add(1, 2)));\nglobalThis.frame = lines;\n',
    "js/grid/sum.js": 'import { plus } from "../../vendor/plus.js";\nimport { say } from "../lib/log.js";\n'
                      'say(import.meta.url.split("/").pop());\n'
                      'export const add = (a, b) => plus(a, b);\n',
    "vendor/plus.js": "const p=(a,b)=>a+b;export{p as plus};\n",
}
ENTRIES = ("js/base/frame.js", "js/tune/one.js", "js/tune/two.js", "js/lib/late.js")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run(folder: Path, *names: str) -> list[str]:
    """What a page that loads these files one after the other says, in order."""
    loads = "".join(f"await import('./{name}');\n" for name in names)
    (folder / "page.js").write_text(loads + "console.log(JSON.stringify(globalThis.frame ?? globalThis.answer));\n")
    assert NODE is not None
    said: list[str] = json.loads(subprocess.run([NODE, "page.js"], cwd=folder, check=True, capture_output=True, text=True).stdout)
    return said


@pytest.mark.process
@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("page", [("js/tune/one.js",), ("js/base/frame.js", "js/tune/one.js"),
                                  ("js/tune/one.js", "js/base/frame.js"),
                                  ("js/lib/late.js", "js/base/frame.js", "js/tune/two.js", "js/tune/one.js")])
def test_a_bundle_runs_as_its_modules_do(tmp_path: Path, page: tuple[str, ...]) -> None:
    modules, bundled = write(tmp_path / "modules", SITE), write(tmp_path / "bundled", bundle(SITE, ENTRIES))
    assert run(bundled, *page) == run(modules, *page) != []


def test_what_several_pages_need_is_one_file_per_folder() -> None:
    files = bundle(SITE, ENTRIES)
    assert set(files) == {"js/lib.js", "js/tune.js", "js/grid/sum.js", "vendor/plus.js", *ENTRIES}
    assert files["vendor/plus.js"] == SITE["vendor/plus.js"]
    assert "class Counter" in files["js/lib.js"] and "Many" in files["js/tune.js"] and "Counter" not in files["js/base/frame.js"]


def test_a_vendor_file_goes_to_those_alone_who_take_it_in() -> None:
    """Where several pages need a module that takes in a vendor file, its neighbours' file does not fetch that for all others."""
    needs_plain, needs_sum = ('import { plain } from "../grid/plain.js";\n', 'import { add } from "../grid/sum.js";\n')
    site = SITE | {"js/grid/plain.js": "export const plain = 1;\n", "js/tune/two.js": needs_plain,
                   "js/tune/three.js": needs_sum + needs_plain}
    files = bundle(site, [*ENTRIES, "js/tune/three.js"])
    assert "js/grid/sum.js" in files and "plus.js" in files["js/grid/sum.js"]
    assert "plain = 1" in files["js/grid.js"] and "plus.js" not in files["js/grid.js"]


def test_lines_stay_lines() -> None:
    """A line of a stack trace is found again: each module keeps its own, below its name."""
    lines = bundle(SITE, ENTRIES)["js/tune.js"].split("\n")
    begin = lines.index("// js/tune/shared.js")
    assert lines[begin + 3] == "" and lines[begin + 4].startswith("const make = ")      # a comment leaves its line


def test_comments_stay_behind_and_code_that_looks_like_one_does_not() -> None:
    text = ('/**\n * Says it.\n * @param {string} a\n */\nexport const say = (a) => /** @type {any} */ (a); // once\n  // twice\n'
            'export const all = "image/*";\nexport const url = `https://x.example/*`;\n')
    page = 'import { all, say, url } from "./x.js";\nsay(all + url);\n'
    found = bundle({"js/a/x.js": text, "js/a/y.js": page}, ["js/a/y.js"])["js/a/y.js"]
    assert "Says it" not in found and "twice" not in found
    assert "\n\n\n\nconst say = (a) => /** @type {any} */ (a); // once\n\n" in found
    assert '"image/*"' in found and "`https://x.example/*`" in found


@pytest.mark.parametrize("text, word", [
    ("export default 1;\n", "unknown form"),
    ("export let changing = 1;\n", "unknown form"),
    ("export { a } from './log.js';\n", "unknown form"),
    ("import log from './log.js';\n", "unknown form"),
    ("import { say } from '../lib/log.js';\n", "unknown form"),
    ("export const a = 1, b = 2;\n", "for each name"),
    ('import { sing } from "../lib/log.js";\n', "does not export"),
    ('import * as log from "../lib/log.js";\nlog.sing();\n', "does not export"),
    ('import "../lib/gone.js";\n', "not there"),
    ('import { a } from "./page.js";\nexport const a = 1;\n', "import each other"),
])
def test_what_it_does_not_know_is_refused_by_name(text: str, word: str) -> None:
    with pytest.raises(BundleError, match=word) as caught:
        bundle(SITE | {"js/tune/page.js": text}, ["js/tune/page.js"])
    assert "js/tune/page.js" in str(caught.value)


def test_a_module_that_awaits_is_a_page_of_its_own() -> None:
    with pytest.raises(BundleError, match="awaits"):
        bundle({"js/a/x.js": "await null;\nexport const x = 1;\n", "js/a/y.js": 'import { x } from "./x.js";\n'}, ["js/a/y.js"])


def test_a_style_sheet_takes_in_what_it_names() -> None:
    sheets = {"css/a/page.css": '/* page */\n@import "one.css";\n@import "../b/two.css";\np { }\n',
              "css/a/one.css": "i { }\n", "css/b/two.css": "b { }\n"}
    assert bundle(sheets, [])["css/a/page.css"] == "/* page */\ni { }\nb { }\np { }\n"
    with pytest.raises(BundleError):
        bundle({"css/a.css": '@import "a.css";\n'}, [])
    with pytest.raises(BundleError):
        bundle({"css/a.css": "p { background: url(x.png); }\n"}, [])
