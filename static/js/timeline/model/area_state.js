// What an area's panel shows, and how a link says it. Knows no DOM.

export const TABS = [["table", "Table"], ["histogram", "Histogram"], ["flame", "Flame graph"]];
export const USUAL_BY = ["name", "category"];
const FLAME = { mode: null, order: "heavy", apart: false, focus: null };    // mode null: what fits the tracks

/**
 * @typedef {{tab: string, by: string[], row: string[], range: ?[number, number], flame: {mode: ?string, order: "heavy"|"time"|"sandwich",
 *   apart: boolean, focus: ?number}}} AreaState
 *   row: conditions "column:key" of the row that is looked at; range: durations in ns, [at least, less than)
 */

/** @returns {AreaState} */
export const usual = () => ({ tab: "table", by: [...USUAL_BY], row: [], range: null, flame: { ...FLAME } });

/** Parts of the state as texts of a URL; null where it is the usual one. */
export const say = {
  tab: (state) => (state.tab === "table" ? null : state.tab),
  by: (state) => (state.by.join("\n") === USUAL_BY.join("\n") ? null : state.by.map(escaped).join("|")),
  row: (state) => (state.row.length ? state.row.map(escaped).join("|") : null),
  dur: (state) => (state.range ? state.range.join("-") : null),
  flame: ({ flame }) => {
    const words = [flame.mode ?? "", flame.order === "heavy" ? "" : flame.order, flame.apart ? "apart" : "", flame.focus ?? ""];
    return words.some((word) => word !== "") ? words.join(".") : null;
  },
};

/** Take a part over from a text; what cannot be read leaves the usual. @param {AreaState} state */
export const take = {
  tab: (state, text) => { state.tab = TABS.some(([key]) => key === text) ? text : "table"; },
  by: (state, text) => { state.by = text ? list(text).slice(0, 4) : [...USUAL_BY]; },
  row: (state, text) => { state.row = list(text ?? "").filter((each) => /^.+:-?\d+(,-?\d+)*$/s.test(each)); },
  dur: (state, text) => {
    const found = /^(\d+)-(\d+)$/.exec(text ?? "");
    state.range = found ? [Number(found[1]), Number(found[2])] : null;
  },
  flame: (state, text) => {
    const [mode = "", order = "", apart = "", focus = ""] = (text ?? "").split(".");
    state.flame = {
      mode: ["cpu", "gpu"].includes(mode) ? mode : null, order: ["time", "sandwich"].includes(order) ? order : "heavy",
      apart: apart === "apart", focus: /^\d+$/.test(focus) ? Number(focus) : null,
    };
  },
};

// A column may be any argument's name: only the separator and the sign of escapes are escaped.
const escaped = (text) => text.replace(/[%|]/g, encodeURIComponent);
const list = (text) => text.split("|").filter(Boolean).map((part) => part.replace(/%25|%7C/gi, decodeURIComponent));
