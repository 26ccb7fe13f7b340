// Tabs: one of several views of the same thing. Arrow keys go from tab to tab, as the WAI-ARIA pattern has it.

import { el } from "./dom.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

/**
 * @param {[string, string][]} items key and title @param {string} label for screen readers
 * @param {(key: string) => void} onSelect by a person
 * @returns {{element: HTMLElement, panel: HTMLElement, select: (key: string) => void, next: (direction: number) => void}}
 */
export function tabs(items, label, onSelect) {
  const id = `tabs-${Math.random().toString(36).slice(2)}`;
  const panel = el("div", { class: "tl-tab-panel", role: "tabpanel", id, tabindex: -1 });
  const buttons = new Map(items.map(([key, title]) => [key, el("button", { class: "tl-tab", type: "button", role: "tab", "aria-controls": id, onclick: () => choose(key) }, title)]));
  const element = el("div", { class: "tl-tabs", role: "tablist", "aria-label": label }, [...buttons.values()]);
  let selected = items[0][0];
  const select = (key) => {
    selected = buttons.has(key) ? key : items[0][0];
    for (const [each, button] of buttons) {
      button.setAttribute("aria-selected", String(each === selected));
      button.tabIndex = each === selected ? 0 : -1;
    }
    panel.setAttribute("aria-label", buttons.get(selected).textContent);
  };
  const choose = (key) => { select(key); onSelect(selected); };
  const next = (direction) => {
    const keys = [...buttons.keys()];
    choose(keys[(keys.indexOf(selected) + direction + keys.length) % keys.length]);
  };
  element.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    event.stopPropagation();
    next(STEPS[event.key]);
    buttons.get(selected).focus();
  });
  select(selected);
  return { element, panel, select, next };
}
