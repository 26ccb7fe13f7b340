// What makes it fast: the pictures of a search, which share what is picked. What is picked is in the URL.

import { count, msAsTime } from "../lib/units.js";
import { drawHeat } from "./heat.js";
import { Parallel } from "./parallel.js";
import { drawSlices } from "./slices.js";
import { bestOf, common, facts, parameters, Picks, SLOWER, slowness, TIME, timeAxis } from "./space.js";

/** @typedef {import("./trials.js").Trial} Trial */

const REDRAW_MS = 250; // while trials come
const CLASS_NAMES = ["within 5 %", "to 1.25×", "to 1.5×", "to 2×", "to 4×", "slower"];
const COMMON_SHOWN = 5;

/** @param {string} id */
const by = (id) => /** @type {any} */ (document.getElementById(id));

/**
 * @param {() => Trial[]} trialsNow @param {() => void} onPicks @param {(trial: Trial) => void} onChoose
 * @returns {{update: () => void, clear: () => void, picks: Picks}}
 */
export function explore(trialsNow, onPicks, onChoose) {
  const query = new URL(location.href).searchParams;
  const picks = Picks.fromText(query.get("pick") ?? ""), shown = new Set((query.get("facts") ?? "").split(",").filter(Boolean));
  let heat = (query.get("heat") ?? "").split(","), timer = 0, later = 0;
  const changed = () => { remember(); draw(); onPicks(); };
  const parallel = new Parallel(by("parallel"), by("parallel-tip"), {
    pick: (name, pick) => { if (name) picks.set(name, pick); else picks.clear(); changed(); },
    toggle: (name, value) => { picks.toggle(name, value); changed(); },
    choose: onChoose,
  });

  function remember() {
    const url = new URL(location.href);
    for (const [key, value] of [["pick", picks.toText()], ["facts", [...shown].join(",")], ["heat", heat.filter(Boolean).join(",")]]) {
      if (value) url.searchParams.set(key, value); else url.searchParams.delete(key);
    }
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  /** How much each parameter explains, as the server last said it; the order of slices and the first heat map follow it. */
  function effects() {
    try { return new Map(JSON.parse(by("tune-effects")?.textContent ?? "[]")); } catch { return new Map(); }
  }

  function draw() {
    clearTimeout(timer);
    timer = 0;
    if (by("space").closest("[hidden]")) return; // on a tab that nobody sees: drawn when it is shown
    const trials = trialsNow(), values = parameters(trials), time = timeAxis(trials), best_ms = bestOf(trials);
    by("space-empty").hidden = values.length > 0;
    by("space-body").hidden = values.length === 0;
    if (!values.length) return;
    const shares = effects(), known = [...shares.keys()], compiled = facts(trials);
    const order = [...values].sort((a, b) => place(known, a.name) - place(known, b.name));
    showFacts(compiled);
    parallel.draw({ trials, axes: [...values, ...compiled.filter(({ name }) => shown.has(name)), ...(time ? [time] : [])], picks, best_ms });
    showClasses(trials, best_ms);
    say(trials, values, best_ms);
    cancelAnimationFrame(later);
    later = requestAnimationFrame(() => { // the lines answer a hand at once, the rest with the next frame
      if (time) drawSlices(by("slices"), trials, order, time, picks, best_ms, shares, (name, value) => { picks.toggle(name, value); changed(); });
      showHeat(trials, order, best_ms);
    });
  }

  /** Buttons for the compiler's numbers as further axes. */
  function showFacts(compiled) {
    const names = compiled.map(({ name }) => name).join();
    if (by("space-facts").dataset.names === names) return;
    by("space-facts").dataset.names = names;
    by("space-facts").replaceChildren(...compiled.map(({ name, title }) => toggleButton(title, () => shown.has(name), () => { if (!shown.delete(name)) shown.add(name); remember(); draw(); })));
  }

  /** The legend is what picks by time: for the mouse and the keyboard. */
  function showClasses(trials, best_ms) {
    const numbers = SLOWER.map(() => 0);
    for (const { median_ms } of trials) if (median_ms !== null) numbers[slowness(median_ms, best_ms)] += 1;
    const failed = trials.filter(({ median_ms }) => median_ms === null), host = by("space-classes");
    if (!host.childElementCount) {
      const classButton = (name, text) => { const button = toggleButton("", () => false, () => {}); button.dataset.class = name; button.append(swatch(name), Object.assign(document.createElement("span"), { textContent: text }), " ", Object.assign(document.createElement("b"), { className: "num" })); return button; };
      host.append(...CLASS_NAMES.map((text, at) => classButton(`s${at}`, text)), classButton("failed", "failed"));
    }
    [...host.children].forEach((button, at) => {
      const isFailed = button.dataset.class === "failed", number = isFailed ? failed.length : numbers[at];
      button.querySelector("b").textContent = count(number);
      button.disabled = !number;
      const low = at ? best_ms * SLOWER[at - 1] * (1 + 1e-9) : 0, high = Math.min(best_ms * SLOWER[at], Number.MAX_VALUE), now = picks.on.get(TIME);
      const on = isFailed ? picks.on.has("failed") : now !== undefined && "high" in now && Math.abs(now.high / high - 1) < 1e-6;
      button.setAttribute("aria-pressed", String(on));
      button.onclick = () => {
        if (isFailed) { picks.set(TIME, null); picks.set("failed", on ? null : { values: new Set(failed.map(({ reason }) => reason)) }); }
        else { picks.set("failed", null); picks.set(TIME, on ? null : { low, high }); }
        changed();
      };
    });
  }

  function say(trials, values, best_ms) {
    const some = picks.size ? trials.filter((trial) => picks.passes(trial)) : trials.filter(({ median_ms }) => median_ms !== null && median_ms <= best_ms * SLOWER[0]);
    const best = bestOf(some), share = common(some.filter(({ median_ms }) => median_ms !== null), values).slice(0, COMMON_SHOWN);
    const failed = some.filter(({ median_ms }) => median_ms === null).length;
    const alike = share.length && some.length - failed > 1 ? ` ${some.length - failed === 2 ? "Both" : "Most"} have ${share.map(({ name, value, count: n }) => `${name}=${value}${n < some.length - failed ? ` (${n} of ${some.length - failed})` : ""}`).join(", ")}.` : "";
    by("space-says").textContent = picks.size
      ? `${count(some.length)} of ${count(trials.length)} trials are picked${best === null ? "" : `, the best ${msAsTime(best)}, ${(best / best_ms).toFixed(2)}× the best of all`}${failed ? `; ${count(failed)} failed` : ""}.${alike}`
      : best_ms === null ? `${count(trials.length)} tried, none measured yet.` : `${count(some.length)} of ${count(trials.length)} trials ${some.length === 1 ? "is" : "are"} within 5 % of the best, ${msAsTime(best_ms)}.${alike}`;
    by("space-clear").hidden = !picks.size;
  }

  function showHeat(trials, order, best_ms) {
    by("heat-part").hidden = order.length < 2;
    if (order.length < 2) return;
    const names = order.map(({ name }) => name), [x, y] = [by("heat-x"), by("heat-y")];
    for (const select of [x, y]) {
      if ([...select.options].map(({ value }) => value).sort().join() !== [...names].sort().join()) select.replaceChildren(...names.map((name) => new Option(name, name)));
    }
    const wanted = names.includes(heat[0]) && names.includes(heat[1]) && heat[0] !== heat[1] ? heat : names.slice(0, 2);
    if (document.activeElement !== x) x.value = wanted[0];
    if (document.activeElement !== y) y.value = wanted[1];
    const axis = (name) => order.find((each) => each.name === name);
    drawHeat(by("heat"), trials, axis(wanted[0]), axis(wanted[1]), best_ms, picks, (pair) => {
      for (const name of wanted) picks.set(name, null);
      for (const [name, value] of pair) picks.toggle(name, value);
      changed();
    });
  }

  for (const select of [by("heat-x"), by("heat-y")]) {
    select.addEventListener("change", () => {
      const [x, y] = [by("heat-x").value, by("heat-y").value];
      heat = x !== y ? [x, y] : select.id === "heat-x" ? [x, [...select.options].map(({ value }) => value).find((name) => name !== x)] : [[...select.options].map(({ value }) => value).find((name) => name !== y), y];
      [by("heat-x").value, by("heat-y").value] = heat;
      remember();
      draw();
    });
  }
  by("space-clear").addEventListener("click", () => { picks.clear(); changed(); });
  new ResizeObserver(() => { if (!timer) timer = setTimeout(draw, 60); }).observe(by("parallel").parentElement);
  return { picks, update() { timer ||= setTimeout(draw, REDRAW_MS); }, clear() { picks.clear(); changed(); } };
}

/** @param {string[]} known @param {string} name */
const place = (known, name) => known.includes(name) ? known.indexOf(name) : known.length;

function swatch(name) {
  return Object.assign(document.createElement("i"), { className: `slow-swatch ${name}`, ariaHidden: "true" });
}

/** @param {string} text @param {() => boolean} on @param {() => void} flip */
function toggleButton(text, on, flip) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "chip", textContent: text });
  button.setAttribute("aria-pressed", String(on()));
  button.onclick = () => { flip(); button.setAttribute("aria-pressed", String(on())); };
  return button;
}
