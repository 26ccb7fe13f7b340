"""Bundles browser modules into few files. Knows neither Django nor the disk.

No bundler comes as a well-kept Python package (esbuild's is a wrapper that downloads, Deno fetches esbuild from npm), so this
does what our modules need and refuses the rest. A module becomes a function that runs once, when first imported:

    import { clock } from "./viewport.js";      const $timeline_model_viewport = once(() => {
    export function exactNs(ns) { … }      →    const { clock } = $lib_time();  …  return { exactNs };  });

so names stay as they are written, lines stay lines (those of comments are empty: a fifth of what is sent), and modules run in the
order in which a browser runs them. Exports are
`export function`, `class` and one `const` each; imports are named or `* as`, from relative paths, without cycles.
A style sheet takes in what its leading lines `@import "other.css";` name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

_COMMENT = re.compile(r"^[ \t]*//[^\n]*|/\*.*?\*/", re.M | re.S)
_COMMENT_LINES = re.compile(r"^[ \t]*(?://[^\n]*|/\*(?:(?!\*/).)*\*/[ \t]*)$", re.M | re.S)
_IMPORT = re.compile(r'^import (?:\{([^{}]*)\} from |\* as (\w+) from )?"(\.[^"]+)";', re.M)
_LATER = re.compile(r'\bimport\("(\.[^"]+)"\)')
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function\*?|class|const) (\w+))", re.M)
_TWO_CONSTANTS = re.compile(r"^export const \w+ = [^;\n(){}\[\]\"]*, \w+ = ", re.M)
_LEFT_OVER = re.compile(r"^[ \t]*(?:import[ {*\"]|export\b)", re.M)
_META = re.compile(r"\bimport\.meta\.url\b")
_AWAIT = re.compile(r"^(?:const .*= )?await\b", re.M)
_STYLE = re.compile(r'^@import "([^"]+)";\n', re.M)

_ONCE = "const once = (make) => { let made; return () => (made ??= make()); };\n"


class BundleError(Exception):
    """A module that says something the bundler does not know."""


@dataclass(frozen=True)
class Module:
    """A source file; `name` is its path below static/."""

    name: str
    text: str

    @property
    def variable(self) -> str:
        return "$" + re.sub(r"\W", "_", self.name.removeprefix("js/").removesuffix(".js"))

    @property
    def folder(self) -> str:
        return self.name.split("/")[1]

    @property
    def is_ours(self) -> bool:
        """Return whether it is bundled; vendor/ files stay as they came."""
        return self.name.startswith("js/")

    @cached_property
    def code(self) -> str:
        """Return the text with comments blanked, every character at its place."""
        return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), self.text)

    @cached_property
    def imports(self) -> list[str]:
        return [self.path(match[3]) for match in _IMPORT.finditer(self.code)] if self.is_ours else []

    @cached_property
    def dynamic_imports(self) -> list[str]:
        return [self.path(match[1]) for match in _LATER.finditer(self.code)] if self.is_ours else []

    @cached_property
    def exports(self) -> list[str]:
        return [match[1] for match in _EXPORT.finditer(self.code)]

    def path(self, relative: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.name), relative))


def bundle(sources: Mapping[str, str], entries: Iterable[str]) -> dict[str, str]:
    """Return the files to serve, path → text, for `sources` (path below static/ → text of .js and .css).

    Each of `entries` (paths of modules that pages name) stays a file at its path; what several of them need is in one file
    per folder (js/lib.js, js/timeline.js), so that a page never runs a module twice. A module that takes in a vendor/ file
    stays a file as well: who needs its neighbours alone does not fetch the vendor's. Raises BundleError.
    """
    scripts = _Scripts({name: Module(name, text) for name, text in sources.items() if name.endswith(".js")}, sorted(set(entries)))
    styles = {name: _bundle_style(name, sources) for name in sources if name.endswith(".css")}
    return scripts.files() | styles


class _Scripts:
    """Modules by name, and the file that holds each."""

    def __init__(self, modules: dict[str, Module], entries: list[str]) -> None:
        self.modules, self.entries = modules, entries
        for module in modules.values():
            self._check(module)
        self.dynamic_imports = {name for module in modules.values() for name in module.dynamic_imports}
        self.reached: dict[str, set[str]] = {name: set() for name in modules}
        self.order: list[str] = []              # imported before importing
        for root in [*entries, *sorted(self.dynamic_imports)]:
            self._visit(root, root, [])
        self.place = {name: self._place(modules[name]) for name in self.order}

    def files(self) -> dict[str, str]:
        texts = {path: self._file(path) for path in sorted(set(self.place.values()))}
        for entry in self.entries:
            if entry not in texts:              # others import it as well: its own file only begins it
                texts[entry] = self._head([self.modules[entry]], entry) + f"{self.modules[entry].variable}();\n"
        return texts

    def _check(self, module: Module) -> None:
        if not module.is_ours:
            return
        if _TWO_CONSTANTS.search(module.code):
            raise BundleError(f"{module.name}: one `export const` for each name, please")
        for target in [*module.imports, *module.dynamic_imports]:
            if target not in self.modules:
                raise BundleError(f"{module.name} imports {target}, which is not there")
        for names, whole, path in _IMPORT.findall(module.code):
            target_module = self.modules[module.path(path)]
            imports = [part.split()[0] for part in names.split(",") if part.strip()]
            imports += re.findall(rf"(?<![/\w.]){whole}\.(\w+)", module.code) if whole else []
            if target_module.is_ours and (unknown := set(imports) - set(target_module.exports)):
                raise BundleError(f"{module.name} imports {', '.join(sorted(unknown))}, which {target_module.name} does not export")

    def _visit(self, name: str, root: str, way: list[str]) -> None:
        if name in way:
            raise BundleError("modules import each other: " + " → ".join([*way, name]))
        if name not in self.modules:
            raise BundleError(f"{name} is not there")
        if root in self.reached[name]:
            return
        self.reached[name].add(root)
        for target in self.modules[name].imports:
            self._visit(target, root, [*way, name])
        if name not in self.order:
            self.order.append(name)

    def _place(self, module: Module) -> str:
        if not module.is_ours:
            return module.name
        roots = self.reached[module.name]
        if len(roots) == 1:
            return next(iter(roots))
        is_heavy = any(not self.modules[name].is_ours for name in module.imports)
        return module.name if is_heavy else f"js/{module.folder}.js"

    def _runs_bare(self, module: Module) -> bool:
        """Return whether it is a page's own module: it ends its file and may await."""
        return self.reached[module.name] == {module.name} and module.name not in self.dynamic_imports

    def _file(self, path: str) -> str:
        own = [self.modules[name] for name in self.order if self.place[name] == path]
        if not own[0].is_ours:
            return own[0].text
        wrapped = [module for module in own if not self._runs_bare(module)]
        parts = [self._head(own, path), _ONCE if wrapped else ""]
        for module in own:
            body = self._body(module, path)
            if module in wrapped:
                if _AWAIT.search(module.code):
                    raise BundleError(f"{module.name} awaits, and others import it")
                body = f"export const {module.variable} = once(() => {{\n{body}return {{ {', '.join(module.exports)} }};\n}});\n"
            parts.append(f"// {module.name}\n{body}")
        return "".join(parts)

    def _head(self, own: list[Module], path: str) -> str:
        """Return the imports of a file from other files."""
        needed: dict[str, set[str]] = {}
        for module in own:
            for name in module.imports if self.place[module.name] == path else [module.name]:
                if self.place[name] != path:
                    needed.setdefault(self.place[name], set()).add(name)
        lines = []
        for place, names in sorted(needed.items()):
            variables = ", ".join(sorted(self.modules[name].variable for name in names))
            lines.append(f'import {{ {variables} }} from "{_relative_path(place, path)}";\n' if place.startswith("js/")
                         else f'import * as {variables} from "{_relative_path(place, path)}";\n')
        return "".join(lines)

    def _body(self, module: Module, path: str) -> str:
        def imported(match: re.Match[str]) -> str:
            target = self.modules[module.path(match[3])]
            value = f"{target.variable}()" if target.is_ours else target.variable
            if match[2]:
                return f"const {match[2]} = {value};"
            return f"const {{{match[1].replace(' as ', ': ')}}} = {value};" if match[1] else f"{value};"

        def imported_later(match: re.Match[str]) -> str:
            target = self.modules[module.path(match[1])]
            return f'import("{_relative_path(self.place[target.name], path)}").then((file) => file.{target.variable}())'

        text = _rewrite(module, [
            (_IMPORT, imported), (_LATER, imported_later), (_EXPORT, lambda match: ""),
            (_META, lambda match: f'new URL("{_relative_path(module.name, path)}", import.meta.url).href'),
        ])
        text = _COMMENT_LINES.sub(lambda match: "\n" * match[0].count("\n"), text)
        return text if text.endswith("\n") else text + "\n"


def _rewrite(module: Module, rules: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]) -> str:
    """Replace what the patterns find outside comments."""
    edits = sorted((match.start(), match.end(), new(match)) for pattern, new in rules for match in pattern.finditer(module.code))
    parts, code, offset = [], [], 0
    for start, end, new_text in edits:
        parts += [module.text[offset:start], new_text]
        code += [module.code[offset:start], new_text]
        offset = end
    if (unknown := _LEFT_OVER.search("".join(code) + module.code[offset:])) is not None:
        raise BundleError(f"{module.name}: unknown form of `{unknown[0].strip()}`")
    return "".join(parts) + module.text[offset:]


def _bundle_style(name: str, sources: Mapping[str, str], way: tuple[str, ...] = ()) -> str:
    if name not in sources or name in way:
        raise BundleError(f"{name} is not there, or imports itself")
    text = sources[name]
    if re.search(r"url\((?![\"']?(?:data:|#))", text):
        raise BundleError(f"{name}: a relative url() would lead elsewhere from a bundle")
    folder = posixpath.dirname(name)
    return _STYLE.sub(lambda match: _bundle_style(posixpath.normpath(posixpath.join(folder, match[1])), sources, (*way, name)),
                      text)


def _relative_path(path: str, origin: str) -> str:
    way = posixpath.relpath(path, posixpath.dirname(origin))
    return way if way.startswith(".") else f"./{way}"
