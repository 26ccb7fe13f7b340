// A form that is checked while somebody types: its fields go to the server as they would be sent, and what is wrong stands at the
// field at once. The server checks everything again when the form is sent, and keeps what was typed.

import { ApiError, postJson } from "./http.js";

const PAUSE_MS = 250;

/**
 * @param {HTMLFormElement} form
 * @param {{url: string, body: () => object|null, fieldOf?: (name: string) => Element|null, onAnswer: (answer: any) => void, onError?: (error: ApiError) => void}} options
 *   body: what is asked about, null: nothing yet; answers hold `fields`: name -> what is wrong
 * @returns {{check: () => void}} asks soon, once for many calls
 */
export function checkForm(form, { url, body, fieldOf = (name) => /** @type {any} */ (form.querySelector(`[name="${CSS.escape(name)}"]`)), onAnswer, onError = () => {} }) {
  let timer = 0, wrong = {}, told = ""; // what `wrong` is about
  /** @type {AbortController|null} */
  let asking = null;

  function check() {
    clearTimeout(timer);
    asking?.abort(); // its answer would be about what stood there before
    timer = setTimeout(ask, PAUSE_MS);
  }

  async function ask() {
    const asked = body();
    if (!asked) return;
    asking = new AbortController();
    try {
      const answer = await postJson(url, asked, { signal: asking.signal });
      [wrong, told] = [answer.fields, JSON.stringify(asked)];
      show();
      onAnswer(answer);
    } catch (error) {
      if (error instanceof ApiError) onError(error);
      else if (error.name !== "AbortError") throw error;
    }
  }

  function show() {
    for (const old of form.querySelectorAll(".field-error")) if (!(old.textContent in asSet(wrong))) old.remove();
    for (const field of form.querySelectorAll("[aria-invalid]")) { field.removeAttribute("aria-invalid"); field.removeAttribute("aria-errormessage"); }
    for (const [name, text] of Object.entries(wrong)) {
      const field = fieldOf(name), box = field?.closest(".field, fieldset");
      if (!field || !box) continue;
      const there = [...box.querySelectorAll(".field-error")].find((line) => line.textContent === text);
      const line = there ?? Object.assign(document.createElement("p"), { className: "field-error", textContent: text });
      line.id ||= `wrong-${name.replace(/\W+/g, "-")}`;
      if (!there) box.append(line);
      field.setAttribute("aria-invalid", "true");
      field.setAttribute("aria-errormessage", line.id);
    }
  }

  form.addEventListener("input", check);
  form.addEventListener("change", check);
  form.addEventListener("submit", (event) => {
    if (told !== JSON.stringify(body())) return; // changed since: the server says it
    const first = Object.keys(wrong).map(fieldOf).find((field) => field);
    if (!first) return;
    event.preventDefault(); // what is wrong stands there already
    /** @type {HTMLElement} */ (first).focus();
  });
  check();
  return { check };
}

/** @param {Record<string, string>} texts */
const asSet = (texts) => Object.fromEntries(Object.values(texts).map((text) => [text, true]));
