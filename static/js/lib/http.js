// Requests to our own API: JSON in and out, one kind of error, uploads with progress.

import { root } from "./root.js";

/** What went wrong, where, and what to do about it: the API's {"error", "where", "hint"}. */
export class ApiError extends Error {
  /** @param {number} status 0 = the server could not be reached @param {any} body parsed answer, if any */
  constructor(status, body, retry_s = 0) {
    const error = body?.error ?? body?.detail ?? fieldErrors(body) ?? (status ? `the server answered ${status}` : "the server cannot be reached");
    super(String(error));
    this.name = "ApiError";
    this.status = status;
    this.retry_s = retry_s;             // when the server wants to be asked again; 0: it did not say
    this.error = String(error);
    this.where = body?.where ? String(body.where) : "";
    this.hint = body?.hint ? String(body.hint) : status === 0 ? "check the connection, then try again" : "";
    this.body = body;
  }
}

/** @param {any} body DRF's {"field": ["message", …]} */
function fieldErrors(body) {
  if (!body || typeof body !== "object") return null;
  const lines = Object.entries(body).filter(([, value]) => Array.isArray(value)).map(([name, value]) => `${name}: ${value.join(" ")}`);
  return lines.length ? lines.join("; ") : null;
}

/** @returns {string} Django's CSRF token, from the cookie or the page */
export function csrfToken() {
  // the last of them, as Django takes it: below a path of the host, an application at its root may have set another
  const cookie = document.cookie.split("; ").findLast((part) => part.startsWith("csrftoken="));
  return cookie ? decodeURIComponent(cookie.slice(10)) : document.querySelector('meta[name="csrf-token"]')?.getAttribute("content") ?? "";
}

/** @param {string} text @returns {any} parsed JSON, or null when it is none */
function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

const TRIES = 4;

/** @param {number} wait_ms @param {AbortSignal|null} [signal] ends the wait with its reason */
function pause(wait_ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, wait_ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

/**
 * As fetch, but what only reads is asked again while the server says 503: when it told to, and later each time.
 * @param {string} url @param {RequestInit} options @returns {Promise<Response>} throws ApiError(0) where nobody answers
 */
async function ask(url, options) {
  for (let tries = 1; ; tries++) {
    const response = await fetch(url, { credentials: "same-origin", ...options })
      .catch((error) => { throw error.name === "AbortError" ? error : new ApiError(0, null); });
    if (response.status !== 503 || tries === TRIES || (options.method ?? "GET") !== "GET") return response;
    const after_s = Number(response.headers.get("Retry-After")) || 1;
    await pause(1000 * after_s * tries * (0.75 + Math.random() / 2), options.signal); // spread: all pages wait for the same server
  }
}

/** @param {string} url @param {RequestInit} options */
async function request(url, options) {
  const response = await ask(url, options);
  const body = parsed(await response.text());
  if (!response.ok) throw new ApiError(response.status, body);
  return body;
}

/** @param {string} url @param {{signal?: AbortSignal}} options */
export function getJson(url, { signal } = {}) {
  return request(url, { headers: { Accept: "application/json" }, signal });
}

/**
 * A long answer in lines of JSON: {"progress": 0-1}…, then {"result": …} or {"error": …, "hint": …}. Aborting stops the server's work.
 * @param {string} url @param {{signal?: AbortSignal, onProgress?: (share: number) => void}} options @returns {Promise<any>} the result
 */
export async function getStream(url, { signal, onProgress = () => {} } = {}) {
  const response = await ask(url, { headers: { Accept: "application/json" }, signal });
  if (!response.ok) throw new ApiError(response.status, parsed(await response.text()));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const pieces = [];
  let line = {};
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    pieces.push(next.value);
    if (!next.value.includes("\n")) continue;
    const lines = pieces.splice(0).join("").split("\n");
    pieces.push(lines.pop());
    for (const text of lines.filter(Boolean)) {
      line = parsed(text) ?? {};
      if (line.progress !== undefined) onProgress(line.progress);
    }
  }
  if (line.result === undefined) throw new ApiError(200, line.error ? line : { error: "the answer broke off", hint: "try again" });
  return line.result;
}

/** A table as a file made by the server, for forms that browsers cannot write. @param {string} format "parquet" or "arrow" @returns {Promise<Blob>} */
export async function convert(format, table) {
  const headers = { "Content-Type": "application/json", Accept: "*/*", "X-CSRFToken": csrfToken() };
  const response = await fetch(`${root}api/tables/?format=${format}`, { method: "POST", credentials: "same-origin", headers, body: JSON.stringify(table) })
    .catch(() => { throw new ApiError(0, null); });
  if (!response.ok) throw new ApiError(response.status, parsed(await response.text()));
  return response.blob();
}

/** @param {"POST"|"PATCH"|"PUT"|"DELETE"} method @param {string} url @param {unknown} body @param {{signal?: AbortSignal}} options */
export function sendJson(method, url, body = {}, { signal } = {}) {
  const headers = { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": csrfToken() };
  return request(url, { method, headers, body: JSON.stringify(body), signal });
}

/** @param {string} url @param {unknown} body @param {{signal?: AbortSignal}} options */
export const postJson = (url, body = {}, options = {}) => sendJson("POST", url, body, options);

/**
 * Send a form with files. The key lets the server find what an earlier try made, so it is sent again while the server is away
 * (503, or no answer).
 * @param {string} url @param {FormData} formData
 * @param {(sent_bytes: number, total_bytes: number) => void} onProgress
 * @param {{signal?: AbortSignal, onWait?: () => void}} options
 * @returns {Promise<any>}
 */
export async function upload(url, formData, onProgress = () => {}, { signal, onWait = () => {} } = {}) {
  const key = [...crypto.getRandomValues(new Uint32Array(4))].map((word) => word.toString(16)).join("-"); // randomUUID needs https
  for (let tries = 1; ; tries++) {
    try { return await sendForm(url, formData, key, onProgress, signal); } catch (error) {
      if (tries === TRIES || ![0, 503].includes(error.status)) throw error;
      onWait();
      await pause(1000 * (error.retry_s || 1) * tries, signal);
    }
  }
}

/** XMLHttpRequest because fetch does not tell how much was sent. @param {AbortSignal} [signal] */
function sendForm(url, formData, key, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    xhr.open("POST", url);
    xhr.setRequestHeader("X-CSRFToken", csrfToken());
    xhr.setRequestHeader("Accept", "application/json");
    xhr.setRequestHeader("Idempotency-Key", key);
    xhr.upload.onprogress = (event) => onProgress(event.loaded, event.lengthComputable ? event.total : 0);
    xhr.onload = () => (xhr.status >= 200 && xhr.status < 300 ? resolve(parsed(xhr.responseText)) : reject(new ApiError(xhr.status, parsed(xhr.responseText), Number(xhr.getResponseHeader("Retry-After")) || 0)));
    xhr.onerror = () => reject(new ApiError(0, null));
    xhr.onabort = () => reject(new DOMException("upload stopped", "AbortError"));
    signal?.addEventListener("abort", () => xhr.abort());
    xhr.send(formData);
  });
}
