// The one table of the timeline's keys: what is pressed, what it means, and what the help sheet says. Knows no DOM.

/**
 * @typedef {{shown: string, what: string, bind?: Object<string, string>, held?: Object<string, [string, 1|-1]>, on?: "slice"|"label"|"chosen"}} Key
 *   bind: what is pressed, as `chord` writes it, and the command it means; on: only while a slice, the name of a track, or a
 *   slice or area is chosen. The first that fits is taken.
 *   held: position on the keyboard (WASD stays a cross on any layout) that acts while it is down, its axis and direction.
 */
/** @type {Key[]} */
export const KEYS = [
  { shown: "W S", what: "Zoom in and out at the pointer (hold to go on)", held: { KeyW: ["zoom", -1], KeyS: ["zoom", 1] } },
  { shown: "A D", what: "Pan left and right", held: { KeyA: ["pan", -1], KeyD: ["pan", 1] } },
  { shown: "← →", what: "Previous and next slice of the track; pan while none is selected", bind: { ArrowLeft: "previous", ArrowRight: "next" }, on: "slice",
    held: { ArrowLeft: ["pan", -1], ArrowRight: ["pan", 1] } },
  { shown: "↑ ↓", what: "On the name of a track: to the name above or below", bind: { ArrowUp: "label-up", ArrowDown: "label-down" }, on: "label" },
  { shown: "↑ ↓", what: "Caller and callee, then the track above or below; scroll while no slice is selected", bind: { ArrowUp: "caller", ArrowDown: "callee" }, on: "slice",
    held: { ArrowUp: ["scroll", -1], ArrowDown: ["scroll", 1] } },
  { shown: "[ ]", what: "Back and on along a flow: CPU op → launch call → kernel, forward → backward", bind: { "[": "flow-back", "]": "flow-on" } },
  { shown: "{ }", what: "Another end of the same flow: the op's other launches", bind: { "{": "flow-other-back", "}": "flow-other" } },
  { shown: ", .", what: "Previous and next slice of the track, or the first in view", bind: { ",": "previous", ".": "next" } },
  { shown: "Shift+← Shift+→", what: "Extend the selection by a slice", bind: { "Shift+ArrowLeft": "extend-left", "Shift+ArrowRight": "extend-right" }, on: "chosen" },
  { shown: "Shift+↑ Shift+↓", what: "Extend the selection by a track", bind: { "Shift+ArrowUp": "extend-up", "Shift+ArrowDown": "extend-down" }, on: "chosen" },
  { shown: "F", what: "Fit the selection, or everything", bind: { f: "fit" } },
  { shown: "0", what: "Whole trace (also Home)", bind: { 0: "whole", Home: "whole" } },
  { shown: "M", what: "Mark the selection, or take its mark away", bind: { m: "mark" } },
  { shown: "Enter", what: "Next search hit (Shift+Enter: previous)", bind: { Enter: "hit-next", "Shift+Enter": "hit-previous" } },
  { shown: "Ctrl+F", what: "Search, as /", bind: { "Ctrl+f": "search" } },
  { shown: "B", what: "Bookmark the selected slice, area or moment", bind: { b: "bookmark" } },
  { shown: "N", what: "Write a note there", bind: { n: "note" } },
  { shown: "J K", what: "Next and previous bookmark or note", bind: { j: "note-next", k: "note-previous" } },
  { shown: "L", what: "List of bookmarks and notes", bind: { l: "notes" } },
  { shown: "P", what: "Pin the track: of the focused name, the selection, or under the pointer", bind: { p: "pin" } },
  { shown: "H", what: "Hide it (Shift+H: show all)", bind: { h: "hide", "Shift+h": "show-all" } },
  { shown: "C", what: "Collapse or open it (Shift+C: all groups)", bind: { c: "fold", "Shift+c": "fold-all" } },
  { shown: "Alt+↑ Alt+↓", what: "Move it up or down (or drag its name)", bind: { "Alt+ArrowUp": "track-up", "Alt+ArrowDown": "track-down" } },
  { shown: "V", what: "Critical path: what the run waited for (V again: away)", bind: { v: "path" } },
  { shown: "R", what: "The next critical path: whole run, then each step (Shift+R: previous)", bind: { r: "path-next", "Shift+r": "path-previous" } },
  { shown: "Q", what: "Say what is in view: how busy, and what took most time", bind: { q: "say-view" } },
  { shown: "PageUp PageDown", what: "Scroll by a page", bind: { PageUp: "page-up", PageDown: "page-down" } },
  { shown: "Ctrl+A", what: "Select everything shown", bind: { "Ctrl+a": "select-all" } },
  { shown: "X Z", what: "Next and previous slice of the row that is chosen in the selection's table", bind: { x: "row-next", z: "row-previous" } },
  { shown: "T", what: "Next view of the selection: table, histogram, flame graph (Shift+T: previous)", bind: { t: "tab-next", "Shift+t": "tab-previous" } },
  { shown: "I", what: "Into the panel of the selection", bind: { i: "into-panel" } },
  { shown: "O", what: "Export: files, Perfetto", bind: { o: "export" } },
  { shown: "Esc", what: "Clear the selection, then the search", bind: { Escape: "clear" } },
  { shown: "Click", what: "Select a slice (double click: zoom to it)" },
  { shown: "Drag", what: "Select an area; its edges snap to slices (with Alt: freely). On the ruler also drag them again" },
  { shown: "Shift+Drag", what: "Pan (also the middle button or a finger; two fingers zoom)" },
  { shown: "Wheel", what: "Scroll the tracks (Ctrl: zoom at the pointer, Shift: pan)" },
];

/** Keys that act while held. @type {Object<string, [string, 1|-1]>} */
export const HELD = Object.assign({}, ...KEYS.map((key) => key.held));

/** Every command that a key means: each must exist. */
export const COMMANDS = [...new Set(KEYS.flatMap((key) => Object.values(key.bind ?? {})))];

/** "Shift+ArrowUp", "Ctrl+a", "]": a letter is written small and names its Shift; of a sign Shift is a part. */
export function chord({ key, ctrlKey, metaKey, altKey, shiftKey }) {
  const isLetter = /^\p{L}$/u.test(key), isSign = key.length === 1 && !isLetter;
  return `${ctrlKey || metaKey ? "Ctrl+" : ""}${altKey ? "Alt+" : ""}${shiftKey && !isSign ? "Shift+" : ""}${isLetter ? key.toLowerCase() : key}`;
}

/**
 * @param {{key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean, shiftKey: boolean}} event
 * @param {{slice: boolean, chosen: boolean, label: boolean}} state @returns {?string} the command that the keys mean now
 */
export function commandOf(event, state) {
  const pressed = chord(event);
  return KEYS.find(({ bind, on }) => bind && pressed in bind && (!on || state[on]))?.bind[pressed] ?? null;
}
