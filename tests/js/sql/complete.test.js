import assert from "node:assert/strict";
import { test } from "node:test";
import { columnOptions, schemaOf } from "../../../static/js/sql/complete.js";

const column = (name) => ({ name, type: "BIGINT", about: `what ${name} is` });
const TABLES = [{ name: "slices", about: "s", columns: [column("profile"), column("dur_ns")] }, { name: "kernels", about: "k", columns: [column("profile"), column("grid")] }];
const labels = (text) => columnOptions(TABLES, text).map((each) => each.label);

test("columns come from the tables that the query names, else from all, each once", () => {
  assert.deepEqual(labels("SELECT "), ["profile", "dur_ns", "grid"]);
  assert.deepEqual(labels("SELECT  FROM Kernels"), ["profile", "grid"]);
  assert.deepEqual(labels("SELECT x FROM kernels JOIN slices USING (profile)"), ["profile", "dur_ns", "grid"]);
});

test("the schema carries each table's columns with type and meaning", () => {
  const { slices } = schemaOf(TABLES);
  assert.equal(slices.self.label, "slices");
  assert.deepEqual(slices.children[1], { label: "dur_ns", type: "property", detail: "bigint", info: "what dur_ns is" });
});
