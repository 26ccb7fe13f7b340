// The page of two timelines: opens both, links their time axes, aligns them, and keeps that in the URL.

import { bind } from "../lib/keys.js";
import { ns as nsText } from "../lib/units.js";
import { el } from "./widgets/dom.js";
import { parts } from "./commands/history.js";
import { alignments, Link } from "./model/linked.js";
import { open } from "./open.js";

const $ = (id) => document.getElementById(id);

class Pair {
  /** @param {import("./app.js").App[]} apps */
  constructor(apps) {
    this.apps = apps;
    this.link = new Link(...apps);
    this.keys = ["off", "link", "cols"];
    this.prefix = "";
    parts.push(this);
    for (const app of apps) app.onFrame = (time) => this.moved(app, time);
  }

  start() {
    const { apps, link } = this, ways = alignments(apps);
    this.ways = ways;
    $("tl-align").replaceChildren(el("option", { value: "" }, "Align by…"), ...ways.map(({ key, text }) => el("option", { value: key }, text)));
    $("tl-align").addEventListener("change", () => this.alignBy($("tl-align").value));
    $("tl-link-on").addEventListener("click", () => this.turn(!link.isOn));
    $("tl-align-here").addEventListener("click", () => this.alignHere());
    $("tl-columns").addEventListener("click", () => { this.layOut(!this.isColumns); this.remember(); });
    for (const [key, what, run] of [["v", "Go to the other timeline", () => this.other()], ["u", "Link or unlink the time axes", () => this.turn(!link.isOn)],
      ["y", "Align at what is selected in each", () => this.alignHere()]]) bind(key, what, run, "Two timelines");
    for (const app of apps) for (const kind of ["focusin", "mousedown"]) app.root.addEventListener(kind, () => this.tellActive());
    addEventListener("popstate", () => this.restore(), true);      // before the windows of the two are taken over
    apps[0].activate();
    this.restore();
    for (const app of apps) app.history.restore(false);
    this.tellActive();
  }

  /** What this page adds to the URL of its timelines. @returns {[string, string][]} */
  entries() {
    const { link } = this, entries = [];
    if (link.offset) entries.push(["off", String(link.offset)]);
    if (!link.isOn) entries.push(["link", "0"]);
    if (this.isColumns) entries.push(["cols", "1"]);
    return entries;
  }

  restore() {
    const query = new URLSearchParams(location.search), { link } = this;
    link.offset = /^-?\d{1,18}$/.test(query.get("off") ?? "") ? Number(query.get("off")) : 0;
    this.layOut(query.get("cols") === "1");
    link.turn(query.get("link") !== "0");
    this.tell();
  }

  remember() { this.apps[0].history.remember(); }

  /** A frame of one: the other shows the same stretch of time in the same frame. */
  moved(app, time) {
    const other = this.link.other(app);
    if (app.isActive && other.stage.labelWidth !== app.stage.labelWidth) other.stage.setLabelWidth(app.stage.labelWidth);
    if (!this.link.follow(app)) return;
    other.animation = null;
    other.changed("tracks");
    cancelAnimationFrame(other.scheduled);
    other.frame(time);
  }

  turn(isOn) {
    this.link.turn(isOn);
    this.tell();
    this.remember();
  }

  alignBy(key) {
    const way = this.ways.find((w) => w.key === key);
    if (way) this.align(...way.at);
    $("tl-align").value = "";
  }

  /** By the selected slice or area of each. */
  alignHere() {
    const [a, b] = this.apps.map((app) => app.chosen.span?.start);
    if (a === undefined || b === undefined) this.active.say("Select a slice in each timeline first.");
    else this.align(a, b);
  }

  align(aNs, bNs) {
    if (!this.link.isOn) this.link.turn(true);
    this.link.align(aNs, bNs);
    this.tell();
    this.remember();
    this.active.say(`Aligned: the second is shifted by ${nsText(this.link.offset)}.`);
  }

  get active() { return this.apps.find((app) => app.isActive); }

  other() {
    const next = this.link.other(this.active);
    next.activate();
    next.focus();
    this.tellActive();
  }

  layOut(isColumns) {
    this.isColumns = isColumns;
    $("tl-pair").classList.toggle("tl-pair-columns", isColumns);
    $("tl-columns").setAttribute("aria-pressed", String(isColumns));
    $("tl-columns").textContent = isColumns ? "Below each other" : "Side by side";
    for (const app of this.apps) app.changed("tracks");
  }

  tellActive() {
    for (const app of this.apps) {
      app.root.toggleAttribute("data-active", app.isActive);
      app.searchBar.field.toggleAttribute("data-page-search", app.isActive);      // what "/" goes to
    }
  }

  tell() {
    const { isOn, offset } = this.link;
    $("tl-link-on").setAttribute("aria-pressed", String(isOn));
    $("tl-link-on").textContent = isOn ? "Linked" : "Not linked";
    $("tl-offset").textContent = isOn ? `shifted by ${nsText(offset)}` : "each moves alone";
    $("tl-offset").title = `${offset.toLocaleString("en-US")} ns`;
    for (const app of this.apps) app.changed("tracks");
  }
}

const roots = [...document.querySelectorAll(".tl")];
const apps = await Promise.all(roots.map((root) => open(root)));
const pair = new Pair(apps);
pair.start();
$("tl-pair").pair = pair;
$("tl-pair").dataset.ready = "1";
