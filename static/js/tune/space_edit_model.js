// What the form of a new job works out from an edited space: values taken out and added, what is sent. No DOM.

/** @typedef {string|number|boolean} Value */
/** @typedef {{name: string, values: Value[]}} Param a parameter with the operator's own values */
/** @typedef {{parameters: Record<string, Value[]>, constraints: string[]}} Edit */

/** @param {Value} one @param {Value} other */
const same = (one, other) => String(one) === String(other);

/** The edit of a text that the form carries; an empty one where it is none. @param {string} text @returns {Edit} */
export function readEdit(text) {
  try {
    const found = JSON.parse(text || "{}");
    return { parameters: { ...(found.parameters ?? {}) }, constraints: [...(found.constraints ?? [])] };
  } catch { return { parameters: {}, constraints: [] }; }
}

/** What the form carries: "" where nothing is edited. @param {Edit} edit */
export const writeEdit = (edit) => isEdited(edit) ? JSON.stringify({ parameters: edit.parameters, constraints: edit.constraints }) : "";

/** @param {Edit} edit */
export const isEdited = (edit) => Object.keys(edit.parameters).length > 0 || edit.constraints.length > 0;

/** Every value to show of a parameter: its own, then those that were added. @param {Param} param @param {Edit} edit */
export function shown(param, edit) {
  const kept = edit.parameters[param.name] ?? param.values;
  const added = kept.filter((value) => !param.values.some((own) => same(own, value)));
  return [...param.values, ...added].map((value) => ({ value, on: kept.some((each) => same(each, value)), own: !added.includes(value) }));
}

/** The edit with these values of a parameter; its own again are no edit. @param {Edit} edit @param {Param} param @param {Value[]} values @returns {Edit} */
export function withValues(edit, param, values) {
  const parameters = { ...edit.parameters };
  const whole = values.length === param.values.length && param.values.every((own) => values.some((value) => same(own, value)));
  if (whole) delete parameters[param.name];
  else parameters[param.name] = values;
  return { parameters, constraints: edit.constraints };
}

/** A value taken out, or put back; one that was added goes. @param {Edit} edit @param {Param} param @param {Value} value */
export function toggled(edit, param, value) {
  const kept = edit.parameters[param.name] ?? param.values;
  const rest = kept.filter((each) => !same(each, value));
  return withValues(edit, param, rest.length < kept.length ? rest : [...kept, value]);
}

/** The edit with values of a line like "64, 128" added. @param {Edit} edit @param {Param} param @param {string} text */
export function added(edit, param, text) {
  const kept = edit.parameters[param.name] ?? param.values;
  const fresh = text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => valueOf(part, param.values));
  return withValues(edit, param, [...kept, ...fresh.filter((value, at) => ![...kept, ...fresh.slice(0, at)].some((each) => same(each, value)))]);
}

/** @param {string} text @param {Value[]} values of its kind @returns {Value} */
function valueOf(text, values) {
  if (values.every((value) => typeof value === "boolean") && /^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  return values.every((value) => typeof value === "number") && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** Words on how many can run. @param {{valid: number|null, size: number|null, whole: boolean}} answer @returns {[string, string]} number, the rest */
export function countWords({ valid, size, whole }) {
  if (valid === null) return ["—", "configurations"];
  const of = size === null ? "" : `of ${size.toLocaleString("en")} `;
  return [`${whole ? "" : "at least "}${valid.toLocaleString("en")}`, `${of}configurations can run`];
}

/** The parameters that another operator, shape or GPU has not: they are no longer edited. @param {Edit} edit @param {Param[]} params @returns {Edit} */
export function fitting(edit, params) {
  const names = new Set(params.map(({ name }) => name));
  return { parameters: Object.fromEntries(Object.entries(edit.parameters).filter(([name]) => names.has(name))), constraints: edit.constraints };
}
