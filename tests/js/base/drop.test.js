// What is done with dropped files while a dialog is open, and addresses of our own.

import assert from "node:assert/strict";
import test from "node:test";

import { pathOf, takes } from "../../../static/js/base/drop.js";

test("a drop waits for another dialog, takes the place of its own question, and does not end an upload", () => {
  assert.equal(takes({ dialog: false, own: false, busy: false }), "now");
  assert.equal(takes({ dialog: true, own: false, busy: false }), "later");
  assert.equal(takes({ dialog: true, own: true, busy: false }), "instead");
  assert.equal(takes({ dialog: true, own: true, busy: true }), "not");
});

test("a link of the API is followed on the page's own host", () => {
  assert.equal(pathOf("http://behind.proxy:8000/profiles/7/timeline/?tab=a"), "/profiles/7/timeline/?tab=a");
  assert.equal(pathOf("/profiles/7/"), "/profiles/7/");
});
