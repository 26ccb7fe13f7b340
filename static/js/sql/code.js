// The query in CodeMirror: colours, completion of tables and columns. The textarea stays behind it and holds the same text.

import {
  acceptCompletion, autocompletion, bracketMatching, classHighlighter, closeBrackets, closeBracketsKeymap, completionKeymap,
  EditorState, EditorView, ifNotIn, indentUnit, indentWithTab, keymap, lineNumbers, minimalSetup, placeholder, PostgreSQL, Prec, sql,
  syntaxHighlighting,
} from "../../vendor/codemirror/codemirror.min.js";
import { columnOptions, schemaOf } from "./complete.js";
import { History } from "./editor.js";

const WORD = /[\w$]+/;
const ELSEWHERE = /(\.|\b(from|join|as)\s+)$/i;            // a table comes here, a column of one table, or a new name
const IN_TEXT = ["String", "LineComment", "BlockComment"];

const SELECTED = ["&", "&.cm-focused"];

/** The page's own colours: they change with its theme. */
const THEME = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--panel)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { color: "var(--muted)", backgroundColor: "var(--panel)", borderRight: "1px solid var(--line)" },
  ".cm-placeholder": { color: "var(--muted)" },
  [SELECTED.map((part) => `${part} > .cm-scroller > .cm-selectionLayer .cm-selectionBackground`).join()]: { background: "var(--accent-soft)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip": { color: "var(--text)", backgroundColor: "var(--panel)", borderColor: "var(--line-strong)", boxShadow: "var(--shadow)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { color: "var(--text)", backgroundColor: "var(--accent-soft)" },
  ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "600" },
});

/** Does what `Editor` does. */
export class CodeEditor {
  /** @param {HTMLTextAreaElement} field @param {{run: () => void}} actions @param {import("./complete.js").Table[]} tables */
  constructor(field, { run }, tables) {
    this.field = field;
    this.history = new History();
    this.longest = field.maxLength;
    const past = (direction) => () => {
      const found = this.history.step(direction, this.text);
      if (found !== null) this.set(found);
      return true;
    };
    const columns = (context) => {
      const word = context.matchBefore(WORD);
      if (!word && !context.explicit) return null;
      const from = word ? word.from : context.pos;
      if (ELSEWHERE.test(context.state.sliceDoc(Math.max(0, from - 20), from))) return null;
      return { from, options: columnOptions(tables, this.text), validFor: /^[\w$]*$/ };
    };
    this.view = new EditorView({
      state: EditorState.create({ doc: field.value, extensions: [
        Prec.highest(keymap.of([
          { key: "Mod-Enter", run: () => { run(); return true; } },
          { key: "Mod-ArrowUp", run: past(1) }, { key: "Mod-ArrowDown", run: past(-1) }, { key: "Tab", run: acceptCompletion },
        ])),
        minimalSetup, lineNumbers(), bracketMatching(), closeBrackets(), autocompletion({ icons: false }), indentUnit.of("  "),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, indentWithTab]),
        sql({ dialect: PostgreSQL, schema: schemaOf(tables), upperCaseKeywords: true }),
        PostgreSQL.language.data.of({ autocomplete: ifNotIn(IN_TEXT, columns) }),
        syntaxHighlighting(classHighlighter), THEME, placeholder(field.placeholder),
        EditorState.changeFilter.of(({ newDoc, startState }) => this.longest < 0 || newDoc.length <= Math.max(this.longest, startState.doc.length)),
        EditorView.editorAttributes.of({ class: "sql-code" }),
        EditorView.contentAttributes.of({ "aria-label": "SQL query", "aria-describedby": field.getAttribute("aria-describedby") ?? "" }),
        EditorView.updateListener.of((update) => { if (update.docChanged) field.value = update.state.doc.toString(); }),
      ] }),
    });
    field.before(this.view.dom);
    field.hidden = true;
  }

  get text() { return this.view.state.doc.toString(); }

  set(text, focus = true) {
    const changes = { from: 0, to: this.view.state.doc.length, insert: text };
    this.view.dispatch({ changes, selection: { anchor: 0 }, scrollIntoView: true });
    this.mark(null);
    if (focus) this.focus();
  }

  focus() { this.view.focus(); }

  unmark() { this.mark(null); }

  /** Put a word where the cursor is. */
  insert(word) {
    const { from } = this.view.state.selection.main, before = this.view.state.sliceDoc(Math.max(0, from - 1), from);
    this.view.dispatch(this.view.state.replaceSelection(before && !/[\s.(,]/.test(before) ? ` ${word}` : word));
    this.focus();
  }

  /** Where an error is: its word is selected, or (null) nothing is wrong. */
  mark(position) {
    for (const part of [this.field, this.view.contentDOM]) {
      if (position === null) part.removeAttribute("aria-invalid"); else part.setAttribute("aria-invalid", "true");
    }
    if (position === null) return;
    const anchor = Math.min(position, this.text.length);
    const word = /^[\w$]+|^"[^"]*"|^'[^']*'|^./s.exec(this.text.slice(anchor))?.[0] ?? "";
    this.view.dispatch({ selection: { anchor, head: anchor + word.length }, scrollIntoView: true });
    this.focus();
  }
}
