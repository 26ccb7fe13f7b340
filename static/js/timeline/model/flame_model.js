// A flame graph in memory: nodes from the server's columns, where they stand, search, and ways from node to node. Knows no DOM.

export const UNLINKED = -2;
export const REST = -3;
export const TRACK = -10;
const WORDS = { "-1": "all", [UNLINKED]: "launch not recorded", [REST]: "(smaller ones)" };

/**
 * @typedef {{at: number, label: number, name: string, category: ?number, total: number, self: number, count: number, first: number,
 *   parent: ?Node, children: Node[], depth: number}} Node times in ns
 * @typedef {{node: Node, x0: number, x1: number, row: number}} Box x in shares of the width
 */

/**
 * @param {{label: number[], parent: number[], total: number[], self: number[], count: number[], first: number[]}} columns parents first
 * @param {{names: Object<string, string>, categories: Object<string, number>}} words @param {(track: number) => string} trackName
 * @returns {Node} the root
 */
export function build(columns, { names, categories }, trackName) {
  /** @type {Node[]} */
  const nodes = [];
  columns.label.forEach((label, at) => {
    const parent = nodes[columns.parent[at]] ?? null;
    const name = label >= 0 ? names[label] ?? "" : label <= TRACK ? trackName(TRACK - label) : WORDS[label] ?? "";
    const node = { at, label, name, category: label >= 0 ? categories[label] ?? null : null, total: columns.total[at], self: columns.self[at],
      count: columns.count[at], first: columns.first[at], parent, children: [], depth: parent ? parent.depth + 1 : 0 };
    parent?.children.push(node);
    nodes.push(node);
  });
  return nodes[0];
}

/** Children in the order that is asked for: most time first, or as they first ran. */
const ordered = (children, order) => [...children].sort(order === "time" ? (a, b) => a.first - b.first : (a, b) => b.total - a.total || a.first - b.first);

/**
 * Boxes of the nodes below `focus` and of those above it, none narrower than `least` of the width.
 * @param {Node} focus fills the width @returns {Box[]}
 */
export function boxes(focus, order, least) {
  const out = [];
  for (let node = focus; node; node = node.parent) out.push({ node, x0: 0, x1: 1, row: node.depth });
  const place = (node, x0, x1) => {
    const scale = (x1 - x0) / Math.max(node.total, 1);
    let x = x0;
    for (const child of ordered(node.children, order)) {
      const end = x + child.total * scale;
      if (end - x >= least) {
        out.push({ node: child, x0: x, x1: end, row: child.depth });
        place(child, x, end);
      }
      x = end;
    }
  };
  place(focus, 0, 1);
  return out;
}

/** The box at a point: x as a share, row from the root. */
export const boxAt = (list, x, row) => list.find((box) => box.row === row && x >= box.x0 && x < box.x1) ?? null;

/** Nodes whose name holds the text, and the share of the time under them (those inside another hit are not counted twice). */
export function search(root, text) {
  const wanted = text.trim().toLowerCase(), hits = new Set();
  let time = 0;
  if (!wanted) return { hits, share: 0 };
  const look = (node, inside) => {
    const hit = node !== root && node.name.toLowerCase().includes(wanted);
    if (hit) hits.add(node);
    if (hit && !inside) time += node.total;
    for (const child of node.children) look(child, inside || hit);
  };
  look(root, false);
  return { hits, share: root.total ? (100 * time) / root.total : 0 };
}

/** Where an arrow key leads among what is drawn: caller, callee of most time, neighbour in the row. @returns {Box} */
export function stepFrom(list, box, key) {
  if (key === "ArrowUp") return list.find((each) => each.node === box.node.parent) ?? box;
  if (key === "ArrowDown") return list.filter((each) => each.node.parent === box.node).sort((a, b) => b.x1 - b.x0 - (a.x1 - a.x0))[0] ?? box;
  const row = list.filter((each) => each.row === box.row).sort((a, b) => a.x0 - b.x0), at = row.indexOf(box);
  return row[at + (key === "ArrowRight" ? 1 : -1)] ?? box;
}

/** The path to a node as text, outermost first. */
export function path(node) {
  const names = [];
  for (let each = node; each?.parent; each = each.parent) names.unshift(each.name);
  return names;
}

/** How many rows the tree has below its root. */
export const rows = (node) => 1 + node.children.reduce((most, child) => Math.max(most, rows(child)), 0);
