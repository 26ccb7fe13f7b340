// Pause, Resume and Stop of one job: they say at once what was asked, and ask again until the job's worker has followed.

import { postJson } from "../lib/http.js";

const AGAIN_MS = 1000; // where a worker does not follow, the server ends the job itself as soon as the worker is silent
const FORMS = ["pause", "resume", "stop"];

export class Controls {
  /** @param {() => void} asked called when the server has taken it */
  constructor(asked) {
    this.asked = asked;
    this.timer = 0;
    this.forms = Object.fromEntries(FORMS.map((name) => [name, /** @type {HTMLFormElement|null} */ (document.getElementById(name))]));
    for (const [name, said] of [["pause", "Pausing…"], ["resume", "Resuming…"], ["stop", "Stopping…"]]) {
      const form = this.forms[name];
      if (form) form.addEventListener("submit", (event) => { event.preventDefault(); this.press(name, said); });
    }
  }

  /** @param {import("./snapshots.js").State} state */
  show({ status, asked, ended }) {
    const runs = status === "queued" || status === "running";
    this.set("pause", runs, asked === "pause" ? "Pausing…" : "Pause", !asked);
    this.set("resume", status === "paused" || asked === "pause", "Resume", true);
    this.set("stop", !ended, asked === "stop" ? "Stopping…" : "Stop", asked !== "stop");
    clearTimeout(this.timer);
    if (asked) this.timer = setTimeout(() => this.post(asked).then(this.asked, () => {}), AGAIN_MS);
  }

  async press(name, said) {
    const before = this.forms[name].querySelector("button").textContent;
    clearTimeout(this.timer);
    this.set(name, true, said, false);
    try {
      await this.post(name);
    } catch (error) {
      this.set(name, true, `${before} (${error.message})`, true);
    }
    this.asked();
  }

  post(name) {
    const url = this.forms[name]?.dataset.api;
    return url ? postJson(url) : Promise.resolve(null);
  }

  /** @param {string} name @param {boolean} there @param {string} text @param {boolean} enabled */
  set(name, there, text, enabled) {
    const form = this.forms[name], button = form?.querySelector("button");
    if (!button) return;
    form.hidden = !there;
    button.disabled = !enabled;
    button.textContent = text;
  }
}
