import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { ApiError, getJson, getStream, upload } from "../../static/js/lib/http.js";

let server, url, answers, asked;
before(async () => {
  server = createServer((request, response) => {
    asked.push(request.url);
    const [status, body] = answers.length > 1 ? answers.shift() : answers[0];
    response.writeHead(status, status === 503 ? { "Retry-After": "0.05" } : {}).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${server.address().port}/`;
});
after(() => server.close());

/** @param {[number, string][]} script the last one again and again */
const answering = (...script) => { answers = script; asked = []; };

test("what only reads is asked again while a server behind it is away", async () => {
  answering([503, '{"error": "the database is away"}'], [503, ""], [200, '{"here": 1}']);
  assert.deepEqual(await getJson(url), { here: 1 });
  assert.equal(asked.length, 3);
  answering([503, ""], [200, '{"progress": 0.5}\n{"result": 7}\n']);
  assert.equal(await getStream(url), 7);
});

test("it gives up with the server's sentence, and asks once about other faults", async () => {
  answering([503, '{"error": "the database is away", "hint": "try again"}']);
  await assert.rejects(getJson(url), (error) => error instanceof ApiError && error.status === 503 && error.error === "the database is away");
  assert.equal(asked.length, 4);
  answering([507, '{"error": "the disk is full"}']);
  await assert.rejects(getJson(url), /the disk is full/);
  assert.equal(asked.length, 1);
});

test("leaving the page ends the wait", async () => {
  answering([503, ""]);
  const leaving = new AbortController();
  const waits = getJson(url, { signal: leaving.signal });
  setTimeout(() => leaving.abort(), 20);
  await assert.rejects(waits, { name: "AbortError" });
});

test("an upload is sent again with its key while the server is away, and no longer", async () => {
  const keys = [];
  let scripted = [];
  globalThis.document ??= { cookie: "", querySelector: () => null };
  globalThis.XMLHttpRequest = class {
    upload = {};
    headers = {};
    open() {}
    setRequestHeader(name, value) { this.headers[name] = value; }
    getResponseHeader() { return "0.01"; }
    send() {
      keys.push(this.headers["Idempotency-Key"]);
      const [status, body] = scripted.length > 1 ? scripted.shift() : scripted[0];
      Object.assign(this, { status, responseText: body });
      setTimeout(() => (status ? this.onload() : this.onerror()));
    }
  };
  scripted = [[503, ""], [503, ""], [201, '{"id": 3}']];
  let waits = 0;
  assert.deepEqual(await upload("/api/profiles/", {}, undefined, { onWait: () => waits++ }), { id: 3 });
  assert.deepEqual([keys.length, new Set(keys).size, waits], [3, 1, 2]);
  scripted = [[400, '{"error": "the file is empty"}']];
  await assert.rejects(upload("/api/profiles/", {}), /the file is empty/);
  assert.deepEqual([keys.length, new Set(keys).size], [4, 2]);
});
