// One WebSocket per page for all that changes by itself. It tells only what is new: pages catch up from the API
// whenever onState("live") is called, which is after the server confirmed the topics, so nothing falls between.

import { root } from "./root.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;
const LOST_AFTER_MS = 3000;
const SIGNED_OUT = 4401;

/** @typedef {"live"|"connecting"|"lost"} State */
/** @typedef {{topic: string, event: string, data: any}} Message */
/** @typedef {{topics: Set<string>, onMessage: (message: Message) => void, onState: (state: State) => void, fresh: boolean}} Watcher */
// fresh: not yet told "live" for its present topics

/** @type {Set<Watcher>} */
const watchers = new Set();
/** @type {Set<(state: State|null) => void>} */
const listeners = new Set();
/** @type {WebSocket|null} */
let socket = null;
/** @type {State} */
let state = "connecting";
let wait_ms = FIRST_WAIT_MS;
let timer = 0;
let lostTimer = 0;

/** @param {State} next */
function show(next) {
  state = next;
  for (const listener of listeners) listener(watchers.size ? next : null);
}

/** @param {"connecting"|"lost"} next */
function tellAll(next) {
  show(next);
  for (const watcher of [...watchers]) watcher.onState(next);
}

/** The server forwards these topics from now on. @param {Set<string>} topics */
function confirmed(topics) {
  wait_ms = FIRST_WAIT_MS;
  clearTimeout(lostTimer);
  show("live");
  for (const watcher of [...watchers]) {
    if (!watcher.fresh || ![...watcher.topics].every((topic) => topics.has(topic))) continue;
    watcher.fresh = false;
    watcher.onState("live");
  }
}

function send() {
  if (socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ watch: [...new Set([...watchers].flatMap((watcher) => [...watcher.topics]))] }));
  }
}

/** @param {MessageEvent} event */
function received(event) {
  const message = JSON.parse(event.data);
  if (message.event === "watching") confirmed(new Set(message.data.topics));
  for (const watcher of [...watchers]) if (watcher.topics.has(message.topic)) watcher.onMessage(message);
}

/** @param {CloseEvent} event */
function closed(event) {
  socket = null;
  for (const watcher of watchers) watcher.fresh = true;
  if (!watchers.size) return;
  if (event.code === SIGNED_OUT) { tellAll("lost"); return; }    // another page signed out: only signing in helps
  if (state === "live") tellAll("connecting");
  clearTimeout(lostTimer);
  lostTimer = setTimeout(() => { if (state !== "live") tellAll("lost"); }, LOST_AFTER_MS);
  clearTimeout(timer);
  timer = setTimeout(connect, wait_ms * (0.75 + Math.random() / 2)); // spread: a restarted server meets all pages at once
  wait_ms = Math.min(wait_ms * 2, LONGEST_WAIT_MS);
}

function connect() {
  if (document.body?.dataset.shared) return;     // who reads by a link gets no messages
  clearTimeout(timer);
  if (socket || !watchers.size) return;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}${root.replace(/p\/[^/]+\/$/, "")}ws/live/`);
  socket.onopen = send;
  socket.onmessage = received;
  socket.onclose = closed;
}

if (typeof addEventListener === "function") {
  addEventListener("online", () => { wait_ms = FIRST_WAIT_MS; connect(); });
  addEventListener("visibilitychange", () => { if (!document.hidden && watchers.size && !socket) connect(); });
}

/**
 * Watch topics ("profile.7", "tune.3", "home"). onState is called with "live" each time the server has confirmed them
 * (refetch then), with "connecting" when the connection drops and "lost" when it stays away.
 * @param {string[]} topics @param {(message: Message) => void} onMessage @param {(state: State) => void} onState
 * @returns {{set: (topics: string[]) => void, close: () => void}}
 */
export function watch(topics, onMessage, onState = () => {}) {
  const watcher = { topics: new Set(topics), onMessage, onState, fresh: true };
  watchers.add(watcher);
  onState("connecting");
  for (const listener of listeners) listener(state);
  if (socket) send(); else connect();
  return {
    set(next) {
      watcher.topics = new Set(next);
      watcher.fresh = true;
      send();
    },
    close() {
      watchers.delete(watcher);
      if (watchers.size) { send(); return; }
      clearTimeout(timer);
      clearTimeout(lostTimer);
      socket?.close();
      for (const listener of listeners) listener(null);
    },
  };
}

/** Drop the connection and make a new one: pages catch up as after any loss. */
export function reconnect() {
  socket?.close();
}

/** The frame's indicator: the connection's state, or null while nothing is watched. @param {(state: State|null) => void} listener */
export function onConnection(listener) {
  listeners.add(listener);
  listener(watchers.size ? state : null);
}
