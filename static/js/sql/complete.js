// What the editor may complete: the tables and columns that the page lists. Knows no DOM.

/** @typedef {{name: string, about: string, columns: {name: string, type: string, about: string}[]}} Table */

const option = ({ name, type, about }) => ({ label: name, type: "property", detail: type.toLowerCase(), info: about });

/** As the dialect's completion takes it. @param {Table[]} tables */
export function schemaOf(tables) {
  const entry = ({ name, about, columns }) => ({ self: { label: name, type: "class", info: about }, children: columns.map(option) });
  return Object.fromEntries(tables.map((table) => [table.name, entry(table)]));
}

/** Columns of the tables that the query names, of all while it names none; each once. @param {Table[]} tables @param {string} text */
export function columnOptions(tables, text) {
  const words = new Set(text.toLowerCase().match(/[\w$]+/g) ?? []);
  const named = tables.filter((table) => words.has(table.name.toLowerCase()));
  const found = new Map();
  for (const table of named.length ? named : tables) {
    for (const column of table.columns) if (!found.has(column.name)) found.set(column.name, { ...option(column), boost: 1 });
  }
  return [...found.values()];
}
