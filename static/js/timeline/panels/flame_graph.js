// One flame graph on a canvas: hover tells exact numbers, a click or Enter zooms, arrow keys go from box to box.

import { ns, pct } from "../../lib/units.js";
import { el } from "../widgets/dom.js";
import { paintFlame, rowAt, ROW_PX, top } from "../draw/flame.js";
import { boxAt, boxes, path, rows, search, stepFrom } from "../model/flame_model.js";
import { exactNs } from "../model/viewport.js";

const ARROWS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];
const NARROWEST_PX = 0.6;

export class FlameGraph {
  /**
   * @param {import("../model/flame_model.js").Node} root
   * @param {{label: string, order: string, upwards?: boolean, tell: (text: string, node: ?object) => void, paint: () => object,
   *   pick?: (node: object) => void}} options tell: what is under the pointer; pick: a name was chosen (Shift+click, S)
   */
  constructor(root, options) {
    Object.assign(this, { root, options, focus: root, current: null, hover: null, hits: null });
    this.rows = rows(root);
    this.upwards = Boolean(options.upwards);
    this.canvas = el("canvas", { class: "tl-flame", tabindex: 0, role: "img", "aria-label": `${options.label}. Arrow keys go from box to box, Enter zooms, Backspace zooms out, S shows callers and callees` });
    this.canvas.style.height = `${this.rows * ROW_PX}px`;
    this.canvas.addEventListener("mousemove", (event) => this.hovered(this.at(event)));
    this.canvas.addEventListener("mouseleave", () => this.hovered(null));
    this.canvas.addEventListener("click", (event) => this.clicked(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.layout()).observe(this.canvas);
  }

  layout() {
    this.boxes = boxes(this.focus, this.options.order, NARROWEST_PX / Math.max(this.canvas.clientWidth, 1));
    this.current = this.boxes.find((box) => box.node === this.current?.node) ?? null;
    this.hover = null;
    this.repaint();
  }

  repaint() { if (this.boxes) paintFlame(this.canvas, this, this.options.paint()); }

  at(event) {
    const bounds = this.canvas.getBoundingClientRect();
    return boxAt(this.boxes ?? [], (event.clientX - bounds.left) / bounds.width, rowAt(this, event.clientY - bounds.top));
  }

  hovered(box) {
    if (box === this.hover) return;
    this.hover = box;
    this.tell(box ?? this.current);
    this.repaint();
  }

  tell(box) { this.options.tell(box ? words(box.node, this.root) : "", box?.node ?? null); }

  clicked(event) {
    const box = this.at(event);
    if (!box) return;
    if (event.shiftKey) this.options.pick?.(box.node);
    else this.zoom(box.node);
  }

  /** Let a node fill the width; what is above it stays. */
  zoom(node) {
    this.focus = node;
    this.current = { node };
    this.layout();
    this.tell(this.current);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!this.boxes) this.layout();     // a key can come before the first frame
    if (ARROWS.includes(event.key)) {
      const key = this.upwards ? { ArrowUp: "ArrowDown", ArrowDown: "ArrowUp" }[event.key] ?? event.key : event.key;
      this.current = this.current ? stepFrom(this.boxes, this.current, key) : this.boxes.find((box) => box.node === this.focus);
      this.canvas.parentElement.scrollTop = Math.max(top(this, this.current.row) - this.canvas.parentElement.clientHeight / 2, 0);
      this.tell(this.current);
      this.repaint();
    } else if (event.key === "Enter" && this.current) this.zoom(this.current.node);
    else if ((event.key === "Backspace" || event.key === "Escape") && this.focus !== this.root) this.zoom(event.key === "Escape" ? this.root : this.focus.parent);
    else if (event.key.toLowerCase() === "s" && this.current) this.options.pick?.(this.current.node);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Dim all but what holds the text. @returns {string} how much that is */
  search(text) {
    const { hits, share } = search(this.root, text);
    this.hits = text.trim() ? hits : null;
    this.repaint();
    return text.trim() ? `${hits.size.toLocaleString("en-US")} ${hits.size === 1 ? "box" : "boxes"}, ${pct(share)} of the time` : "";
  }
}

/** Name and exact numbers of a node. */
export function words(node, root) {
  const share = root.total ? ` (${pct((100 * node.total) / root.total)})` : "";
  const calls = node.count ? `, ${node.count.toLocaleString("en-US")} ${node.count === 1 ? "slice" : "slices"}` : "";
  return `${node.name || "all"}: ${ns(node.total)} = ${exactNs(node.total)}${share}, itself ${exactNs(node.self)}${calls}`;
}

export const pathText = (node) => path(node).join("\n");
