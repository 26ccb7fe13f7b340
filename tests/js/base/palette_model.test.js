import assert from "node:assert/strict";
import test from "node:test";

import { groups, rank, remembered, score, stillFitting } from "../../../static/js/base/palette_model.js";

const page = (title, words = "", kind = "page") => ({ kind, title, url: `/${title.toLowerCase().replace(/\W+/g, "-")}/`, words });
const ENTRIES = [page("Overview", "home"), page("Profiles", "traces"), page("Kernels"), page("Fleet: Kernels"), page("Guard: Gates", "verdicts CI"),
  page("Tune: Jobs", "autotune"), page("New tune job", "start", "action"), page("Start a gate", "new check", "action"), page("Import a profile", "upload drop", "action")];
const titles = (found) => found.map(({ title }) => title);

test("the start of a title stands before the start of a word, that before its inside, and other words after", () => {
  const found = rank("gate", [page("Investigate"), page("Other", "gate"), page("Guard: Gates"), page("Gates")]);
  assert.deepEqual(titles(found), ["Gates", "Guard: Gates", "Investigate", "Other"]);
});

test("every word must fit, in any order and case", () => {
  assert.deepEqual(titles(rank("KERNELS fleet", ENTRIES)), ["Fleet: Kernels"]);
  assert.deepEqual(rank("kernels nothing", ENTRIES), []);
});

test("letters in order find a title from the start of a word on, and no other", () => {
  assert.equal(rank("ntj", ENTRIES)[0].title, "New tune job");
  assert.ok(score("ntj", page("New tune job")) > score("ntj", page("Nectar in the jar")));
  assert.equal(score("zzz", page("New tune job")), 0);
  assert.equal(score("ewt", page("New tune job")), 0);
});

test("what people call a page finds it", () => {
  assert.equal(rank("upload", ENTRIES)[0].title, "Import a profile");
  assert.equal(rank("home", ENTRIES)[0].title, "Overview");
});

test("what was opened lately wins among equals and not against a better fit", () => {
  const entries = [page("Train one"), page("Train two")];
  assert.equal(rank("train", entries, new Set(["/train-two/"]))[0].title, "Train two");
  assert.equal(rank("train one", entries, new Set(["/train-two/"]))[0].title, "Train one");
});

test("with nothing typed, recent objects come first, then actions and pages", () => {
  const recent = Array.from({ length: 9 }, (_, index) => ({ kind: "recent", title: `run ${index}`, url: `/profiles/${index}/` }));
  const found = groups("  ", { entries: ENTRIES, recent, hits: [] });
  assert.deepEqual(found.map(({ title, entries }) => [title, entries.length]), [["Recent", 6], ["Actions", 3], ["Pages", 6]]);
  assert.deepEqual(groups("", { entries: ENTRIES, recent: [], hits: [] }).map(({ title }) => title), ["Actions", "Pages"]);
});

test("hits stand below what is known, none twice, and the search page is last", () => {
  const recent = [{ kind: "recent", title: "tune-run", url: "/profiles/3/" }];
  const hits = [{ title: "profiles", entries: [{ kind: "object", title: "tune-run", url: "/profiles/3/" }, { kind: "object", title: "tune-b", url: "/profiles/4/" }] }];
  const found = groups("tune", { entries: ENTRIES, recent, hits });
  assert.deepEqual(found.map(({ title }) => title), ["Jump to", "profiles", "Everything"]);
  assert.ok(titles(found[0].entries).includes("tune-run"));
  assert.deepEqual(titles(found[1].entries), ["tune-b"]);
  assert.equal(found[2].entries[0].url, "/search/?q=tune");
});

test("a query without any hit still leads to the search page, with its text escaped", () => {
  assert.deepEqual(groups("50 % <b>", { entries: ENTRIES, recent: [], hits: [] }).map(({ entries }) => entries[0].url), ["/search/?q=50%20%25%20%3Cb%3E"]);
});

test("earlier hits stay while they fit", () => {
  const hits = [{ title: "profiles", entries: [{ kind: "object", title: "train a", url: "/1/" }, { kind: "object", title: "serve", detail: "train", url: "/2/" }] },
    { title: "builds", entries: [{ kind: "object", title: "tr", url: "/3/" }] }];
  assert.deepEqual(stillFitting("train", hits).map(({ title, entries }) => [title, entries.length]), [["profiles", 2]]);
});

test("what is opened again moves to the head, and the list stays short", () => {
  let kept = [];
  for (let index = 0; index < 40; index += 1) kept = remembered(kept, { kind: "recent", title: `run ${index}`, url: `/profiles/${index}/` });
  kept = remembered(kept, { kind: "recent", title: "run 30", url: "/profiles/30/" });
  assert.equal(kept.length, 24);
  assert.equal(kept[0].url, "/profiles/30/");
  assert.equal(kept.filter(({ url }) => url === "/profiles/30/").length, 1);
});
