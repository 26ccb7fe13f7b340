import assert from "node:assert/strict";
import test from "node:test";
import { Notes, title } from "../../../static/js/timeline/data/notes.js";

const note = (id, start_ns, changes = {}) => ({ id, start_ns, end_ns: start_ns + 10, track: 1, depth: 0, text: "", author: "alice", ...changes });
const RIGHTS = { me: "alice", may_write: true, may_moderate: false };

/** Notes over a server that keeps them. */
async function notesOver(...kept) {
  const sent = [];
  const sendJson = async (method, url, body) => {
    sent.push([method, url, body]);
    return method === "DELETE" ? null : { ...note(99, 5), ...body, id: method === "POST" ? 99 : Number(/(\d+)\/$/.exec(url)[1]) };
  };
  let changes = 0;
  const notes = new Notes("/notes/", { getJson: async () => ({ notes: kept, ...RIGHTS }), sendJson }, () => { changes++; });
  await notes.load();
  return { notes, sent, changes: () => changes };
}

test("notes stand in order of time, whoever told of them", async () => {
  const { notes } = await notesOver(note(1, 300), note(2, 100));
  notes.told({ saved: note(3, 200) });
  assert.deepEqual(notes.ordered.map((n) => n.id), [2, 3, 1]);
  notes.told({ deleted: 3 });
  notes.told({ saved: note(1, 50, { text: "moved" }) });
  assert.deepEqual(notes.ordered.map((n) => [n.id, n.text]), [[1, "moved"], [2, ""]]);
});

test("own notes may be changed, all of them by who moderates", async () => {
  const { notes } = await notesOver(note(1, 0));
  assert.ok(notes.mayChange(note(1, 0)));
  assert.ok(!notes.mayChange(note(2, 0, { author: "bob" })) && !notes.mayChange(note(3, 0, { author: null })));
  notes.rights = { me: "olga", may_write: true, may_moderate: true };
  assert.ok(notes.mayChange(note(2, 0, { author: "bob" })));
  notes.rights = { me: "alice", may_write: false, may_moderate: false };
  assert.ok(!notes.mayChange(note(1, 0)));
});

test("going on from note to note begins at the view and goes round", async () => {
  const { notes } = await notesOver(note(1, 100), note(2, 200), note(3, 300));
  assert.equal(notes.beside(1, 150).id, 2);
  assert.equal(notes.beside(-1, 150).id, 1);
  assert.equal(notes.beside(1, 999).id, 1);
  assert.equal(notes.beside(-1, 50).id, 3);
  notes.current = 3;
  assert.equal(notes.beside(1, 0).id, 1);
  assert.equal(notes.beside(-1, 0).id, 2);
  assert.equal((await notesOver()).notes.beside(1, 0), null);
});

test("only what touches the view is asked for, and not without end", async () => {
  const { notes } = await notesOver(note(1, 100), note(2, 200), note(3, 300));
  assert.deepEqual(notes.between(105, 205, 9).map((n) => n.id), [1, 2]);
  assert.equal(notes.between(0, 999, 2).length, 2);
});

test("a new note is the current one, unless one went to another before the server answered", async () => {
  const { notes } = await notesOver(note(1, 100), note(2, 200));
  await notes.add({ start_ns: 5, end_ns: 9, track: null, depth: null }, "");
  assert.equal(notes.current, 99);
  notes.current = 1;
  const added = notes.add({ start_ns: 5, end_ns: 9, track: null, depth: null }, "");
  notes.current = 2;
  await added;
  assert.equal(notes.current, 2);
});

test("writing, changing and deleting are sent and shown at once", async () => {
  const { notes, sent } = await notesOver(note(1, 100));
  await notes.add({ start_ns: 5, end_ns: 9, track: null, depth: null }, "new");
  assert.equal(notes.current, 99);
  await notes.edit(1, "better");
  await notes.remove(99);
  assert.deepEqual(sent.map(([method, url]) => [method, url]), [["POST", "/notes/"], ["PATCH", "/notes/1/"], ["DELETE", "/notes/99/"]]);
  assert.deepEqual(notes.ordered.map((n) => n.id), [1]);
});

test("a note is named by its first line", () => {
  assert.equal(title(note(1, 0, { text: "one\ntwo" })), "one");
  assert.equal(title(note(1, 0)), "Bookmark");
});
