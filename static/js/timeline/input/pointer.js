// Mouse, pen and fingers on the tracks, the ruler and the bars between parts, turned into a few words: hover, click, area,
// edge, pan, zoom. It changes nothing itself.

const DRAG_PX = 4;

/** Click, area drag, pan drag and pinch on the tracks or the ruler. */
export function pointer(target, isRuler, local, on) {
  const touches = new Map();
  let gesture = null;
  target.addEventListener("pointerdown", (event) => {
    const at = local(event);
    if (!at.inside || event.button > 1) return;
    touches.set(event.pointerId, at);
    const pan = event.shiftKey || event.button === 1 || event.pointerType === "touch";
    const grip = !pan && on.grip(at, isRuler);
    gesture = { mode: touches.size > 1 ? "pinch" : pan ? "pan" : grip ? "edge" : "press", grip, from: at, last: at, moved: false };
    if (event.button === 1) event.preventDefault();
    target.setPointerCapture(event.pointerId);
  });
  target.addEventListener("pointermove", (event) => {
    const at = local(event);
    if (!gesture) return on.hover(at.inside ? { ...at, ruler: isRuler } : null);
    if (gesture.mode === "pinch") pinch(touches, event.pointerId, at, on);
    touches.set(event.pointerId, at);
    if (!gesture.moved && Math.hypot(at.x - gesture.from.x, at.y - gesture.from.y) < DRAG_PX) return undefined;
    if (!gesture.moved && gesture.mode !== "press") on.hover(null);
    gesture.moved = true;
    if (gesture.mode === "press") gesture.mode = "area";
    if (gesture.mode === "area") on.area(gesture.from, at, false, isRuler);
    if (gesture.mode === "edge") on.edge(gesture.grip, at, false);
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
    const { mode, moved, from, grip } = gesture;
    gesture = null;
    if (event.type === "pointercancel") return;
    if (mode === "area") on.area(from, local(event), true, isRuler);
    else if (mode === "edge" && moved) on.edge(grip, local(event), true);
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

export function drag(target, start, move, end) {
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

/** A bar that resizes its neighbours by mouse or arrow keys; where it stands is told to who does not see it. */
export function separator(element, axis, resize) {
  const tell = () => element.setAttribute("aria-valuenow", String(Math.round(axis === "x" ? element.offsetLeft : element.offsetTop)));
  tell();
  drag(element, () => {}, (event) => resize(axis === "x" ? event.clientX : event.clientY, false), tell);
  element.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -16, ArrowUp: -16, ArrowRight: 16, ArrowDown: 16 }[event.key];
    if (!by) return;
    event.preventDefault();
    resize(by, true);
    tell();
  });
}
