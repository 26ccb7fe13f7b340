// The only module that listens to mouse, wheel, touch and keys. It turns them into a few words: zoom, pan, scroll, hover,
// click, area, command. It changes nothing itself.

import { bind, isTyping } from "../lib/keys.js";

const DRAG_PX = 4;
const ZOOM_PER_WHEEL_PX = 0.0022;
const LINE_PX = 18;             // a wheel that counts lines

/** Keys that act while held, by position on the keyboard (WASD stays a cross on any layout): axis and direction. */
const HELD = { KeyW: ["zoom", -1], KeyS: ["zoom", 1], KeyA: ["pan", -1], KeyD: ["pan", 1], ArrowLeft: ["pan", -1], ArrowRight: ["pan", 1], ArrowUp: ["scroll", -1], ArrowDown: ["scroll", 1] };

const COMMANDS = { f: "fit", F: "fit", 0: "whole", Home: "whole", m: "mark", M: "mark", "[": "previous", "]": "next", ",": "previous", ".": "next", Escape: "clear", Enter: "hit-next", PageUp: "page-up", PageDown: "page-down" };

export const KEYS = [
  ["W", "Zoom in at the pointer (hold to go on)"], ["S", "Zoom out"], ["A", "Pan left (also ←)"], ["D", "Pan right (also →)"],
  ["F", "Fit the selection, or everything"], ["0", "Whole trace (also Home)"], ["M", "Mark the selection, or take its mark away"],
  ["[", "Previous slice on the track"], ["]", "Next slice on the track"],
  ["Enter", "Next search hit (Shift+Enter: previous)"], ["Ctrl+F", "Search, as /"], ["Ctrl+A", "Select everything shown"], ["Esc", "Clear selection, then search"],
  ["Click", "Select a slice (double click: zoom to it)"], ["Drag", "Select an area of time and tracks"], ["Shift+Drag", "Pan (also the middle button)"],
  ["Wheel", "Scroll the tracks (Ctrl: zoom at the pointer, Shift: pan)"],
];

// Feel of held keys: a tap moves by about KICK / FRICTION, holding accelerates up to MAX (screens or e-folds per second).
const KICK = { pan: 1.1, zoom: 2.6, scroll: 5 };
const ACCELERATION = { pan: 3.2, zoom: 4.5, scroll: 16 };
const MAX = { pan: 3.6, zoom: 5, scroll: 30 };
const FRICTION = 11;

/** Speeds of the held axes; a function of what is held and the time that passed. */
export class Motion {
  constructor() {
    this.speed = { pan: 0, zoom: 0, scroll: 0 };
    this.held = new Map();      // key code -> [axis, direction]
  }

  press(code) {
    if (this.held.has(code)) return;
    const [axis, direction] = HELD[code];
    this.held.set(code, [axis, direction]);
    this.speed[axis] = direction * KICK[axis];
  }

  release(code) { this.held.delete(code); }
  stop() {
    this.held.clear();
    this.speed = { pan: 0, zoom: 0, scroll: 0 };
  }

  get isMoving() { return Object.values(this.speed).some((v) => v !== 0); }

  /** @param {number} seconds since the last frame @returns {{pan: number, zoom: number, scroll: number}} distances */
  advance(seconds) {
    const moved = {};
    for (const axis of Object.keys(this.speed)) {
      let direction = 0;
      for (const [heldAxis, d] of this.held.values()) if (heldAxis === axis) direction += d;
      const before = this.speed[axis];
      let after = before;
      if (direction) after = Math.max(-MAX[axis], Math.min(MAX[axis], before + direction * ACCELERATION[axis] * seconds));
      else after = Math.abs(before) < 0.02 * KICK[axis] ? 0 : before * Math.exp(-FRICTION * seconds);
      moved[axis] = ((before + after) / 2) * seconds;
      this.speed[axis] = after;
    }
    return moved;
  }
}

/**
 * @param {{stage: HTMLElement, overview: HTMLElement, ruler: HTMLElement, tracks: HTMLElement[], resizer: HTMLElement,
 *   panelHandle: HTMLElement}} parts
 * @param {object} on what to do: zoom(x, factor) pan(px) scroll(px, pane) hover(point) click(point) open(point)
 *   area(a, b, done) overview(phase, x) resize(x) resizePanel(y) command(name) wake()
 * @returns {Motion}
 */
export function listen(parts, on) {
  const motion = new Motion();
  for (const [keys, what] of KEYS) bind(keys, what, null, "Timeline");
  keys(motion, on);
  wheel(parts, on);
  const local = (event) => {
    const box = parts.ruler.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY, inside: event.clientX >= box.left };
  };
  for (const target of [...parts.tracks, parts.ruler]) pointer(target, target === parts.ruler, local, on);
  drag(parts.overview, (event) => on.overview("start", local(event).x), (event) => on.overview("move", local(event).x), () => on.overview("end", 0));
  parts.overview.addEventListener("pointermove", (event) => { if (!event.buttons) on.overview("hover", local(event).x); });
  separator(parts.resizer, "x", on.resize);
  separator(parts.panelHandle, "y", on.resizePanel);
  parts.stage.addEventListener("pointerleave", () => on.hover(null));
  addEventListener("blur", () => motion.stop());
  return motion;
}

function keys(motion, on) {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!plain && (event.ctrlKey || event.metaKey)) {
      const word = { f: "search", a: isTyping(event.target) ? null : "select-all" }[event.key.toLowerCase()];
      if (!word) return;
      event.preventDefault();
      return on.command(word);
    }
    if (!plain || isTyping(event.target)) return;
    const onControl = event.target instanceof HTMLElement && event.target.closest("button, a, summary, [role=separator], th");
    if (onControl && ["Enter", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key)) return;
    if (event.code in HELD && !event.shiftKey) {
      event.preventDefault();
      motion.press(event.code);
      return on.wake();
    }
    const command = event.key === "Enter" && event.shiftKey ? "hit-previous" : COMMANDS[event.key];
    if (!command) return;
    event.preventDefault();
    on.command(command);
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

/** Click, area drag, pan drag and pinch on the tracks or the ruler. */
function pointer(target, isRuler, local, on) {
  const touches = new Map();
  let gesture = null;
  target.addEventListener("pointerdown", (event) => {
    const at = local(event);
    if (!at.inside || event.button > 1) return;
    touches.set(event.pointerId, at);
    const pan = event.shiftKey || event.button === 1 || event.pointerType === "touch";
    gesture = { mode: touches.size > 1 ? "pinch" : pan ? "pan" : "press", from: at, last: at, moved: false };
    if (event.button === 1) event.preventDefault();
    target.setPointerCapture(event.pointerId);
  });
  target.addEventListener("pointermove", (event) => {
    const at = local(event);
    if (!gesture) return on.hover(at.inside ? { ...at, ruler: isRuler } : null);
    if (gesture.mode === "pinch") pinch(touches, event.pointerId, at, on);
    touches.set(event.pointerId, at);
    if (!gesture.moved && Math.hypot(at.x - gesture.from.x, at.y - gesture.from.y) < DRAG_PX) return undefined;
    gesture.moved = true;
    if (gesture.mode === "press") gesture.mode = "area";
    if (gesture.mode === "area") on.area(gesture.from, at, false, isRuler);
    if (gesture.mode === "pan") {
      on.pan(gesture.last.x - at.x);
      if (!isRuler) on.scroll(gesture.last.y - at.y, target.closest(".tl-pane"), true);
    }
    gesture.last = at;
    return undefined;
  });
  const end = (event) => {
    touches.delete(event.pointerId);
    if (!gesture) return;
    const { mode, moved, from } = gesture;
    gesture = null;
    if (event.type === "pointercancel") return;
    if (mode === "area") on.area(from, local(event), true, isRuler);
    else if (!moved && mode !== "pinch" && !isRuler && event.button === 0) on.click(from);
  };
  target.addEventListener("pointerup", end);
  target.addEventListener("pointercancel", end);
  target.addEventListener("dblclick", (event) => { if (local(event).inside && !isRuler) on.open(local(event)); });
}

function pinch(touches, id, at, on) {
  const other = [...touches].find(([key]) => key !== id)?.[1];
  const before = touches.get(id);
  if (!other || !before) return;
  const was = Math.abs(before.x - other.x), is = Math.abs(at.x - other.x);
  if (was > 8 && is > 8) on.zoom((at.x + other.x) / 2, was / is);
}

function drag(target, start, move, end) {
  target.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    target.setPointerCapture(event.pointerId);
    start(event);
    const stop = () => {
      target.removeEventListener("pointermove", move);
      target.removeEventListener("pointerup", stop);
      target.removeEventListener("pointercancel", stop);
      end();
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", stop);
    target.addEventListener("pointercancel", stop);
  });
}

/** A bar that resizes its neighbours by mouse or arrow keys. */
function separator(element, axis, resize) {
  drag(element, () => {}, (event) => resize(axis === "x" ? event.clientX : event.clientY, false), () => {});
  element.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -16, ArrowUp: -16, ArrowRight: 16, ArrowDown: 16 }[event.key];
    if (!by) return;
    event.preventDefault();
    resize(by, true);
  });
}
