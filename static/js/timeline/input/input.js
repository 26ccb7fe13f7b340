// Keys and wheel, turned into a few words: zoom, pan, scroll, command. It changes nothing itself; pointers are in pointer.js.

import { bind, isTyping } from "../../lib/keys.js";
import { commandOf, HELD, KEYS } from "../model/keymap.js";
import { Motion } from "../model/motion.js";
import { drag, pointer, separator } from "./pointer.js";

const ZOOM_PER_WHEEL_PX = 0.0022;
const LINE_PX = 18;             // a wheel that counts lines
const OF_CONTROLS = ["Enter", " ", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];

let listed = false;

/**
 * @param {{root: HTMLElement, stage: HTMLElement, overview: HTMLElement, ruler: HTMLElement, tracks: HTMLElement[],
 *   resizer: HTMLElement, panelHandle: HTMLElement}} parts
 * @param {object} on what to do: zoom(x, factor) pan(px) scroll(px, pane) hover(point) click(point) open(point) grip(point)
 *   area(a, b, done) edge(grip, point, done) overview(phase, x) resize(x) resizePanel(y) command(name) state() isActive() wake()
 * @returns {Motion}
 */
export function listen(parts, on) {
  const motion = new Motion();
  if (!listed) for (const { shown, what } of KEYS) bind(shown, what, null, "Timeline");
  listed = true;                  // two timelines of a page have the same keys
  keys(motion, on);
  wheel(parts, on);
  const local = (event) => {
    const box = parts.ruler.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY, inside: event.clientX >= box.left, free: event.altKey };
  };
  for (const target of [...parts.tracks, parts.ruler]) pointer(target, target === parts.ruler, local, on);
  drag(parts.overview, (event) => on.overview("start", local(event).x), (event) => on.overview("move", local(event).x), () => on.overview("end", 0));
  parts.overview.addEventListener("pointermove", (event) => { if (!event.buttons) on.overview("hover", local(event).x); });
  separator(parts.resizer, "x", on.resize.bind(on));
  separator(parts.panelHandle, "y", on.resizePanel.bind(on));
  parts.stage.addEventListener("pointerleave", () => on.hover(null));
  addEventListener("blur", () => motion.stop());
  return motion;
}

function keys(motion, on) {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || !on.isActive() || document.querySelector("dialog[open]")) return;
    const typing = isTyping(event.target), label = event.target instanceof HTMLElement && event.target.closest(".tl-label");
    const command = commandOf(event, { ...on.state(), label: Boolean(label) });
    if (typing && command !== "search") return;
    const onControl = event.target instanceof HTMLElement && event.target.closest("button, a, summary, [role=separator], [role=tab], th");
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey;
    if (onControl && plain && OF_CONTROLS.includes(event.key) && !command?.startsWith("label-")) return;
    if (command) {
      event.preventDefault();
      on.command(command);
    } else if (event.code in HELD && plain) {
      event.preventDefault();
      motion.press(event.code);
      on.wake();
    }
  });
  addEventListener("keyup", (event) => motion.release(event.code));
}

function wheel({ stage, ruler, overview }, on) {
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? LINE_PX : event.deltaMode === 2 ? 400 : 1;
    const dx = event.deltaX * unit, dy = event.deltaY * unit;
    const box = ruler.getBoundingClientRect();
    const above = event.target === ruler || event.target === overview;
    if (event.ctrlKey || event.metaKey || (above && !event.shiftKey && Math.abs(dy) > Math.abs(dx))) {
      on.zoom(Math.min(Math.max(event.clientX - box.left, 0), box.width), Math.exp(Math.max(-240, Math.min(240, dy)) * (event.ctrlKey && Math.abs(dy) < 20 ? 5 : 1) * ZOOM_PER_WHEEL_PX));
    } else if (event.shiftKey) on.pan(dx || dy);
    else if (Math.abs(dx) > Math.abs(dy)) on.pan(dx);
    else on.scroll(dy, event.target.closest(".tl-pane"));
  }, { passive: false });
}
