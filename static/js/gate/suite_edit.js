// The form of a suite: fields of the other kinds are hidden, an operator adds its line, and whether the runs are enough is said at once.

const form = document.getElementById("suite-form");
const says = document.getElementById("plan-says");
const kernels = form.elements.kernels;
let timer = 0;

function kindShown() {
  const kind = form.elements.kind.value;
  for (const part of form.querySelectorAll("[data-kind]")) part.hidden = !part.dataset.kind.split(" ").includes(kind);
  plan();
}

/** Asked of the server, which knows the rule: nothing is run for it. */
async function planNow() {
  const lines = kernels.value.split("\n").filter((line) => line.trim()).length;
  if (form.elements.kind.value !== "operators" || !lines) { says.textContent = ""; return; }
  const asked = new URLSearchParams({ kernels: String(lines), runs: form.elements.runs.value, baseline_runs: form.elements.baseline_runs.value });
  const alpha = Number.parseFloat(form.elements.alpha_pct.value);
  if (alpha > 0) asked.set("alpha", String(alpha / 100));
  const response = await fetch(`${form.dataset.plan}?${asked}`, { credentials: "same-origin" });
  if (!response.ok) { says.textContent = ""; return; }
  const told = await response.json();
  says.textContent = told.says;
  says.className = told.enough ? "muted" : "notice notice-warn";
}

function plan() {
  clearTimeout(timer);
  timer = setTimeout(planNow, 200);
}

document.getElementById("add-operator").addEventListener("change", (event) => {
  if (!event.target.value) return;
  kernels.value = `${kernels.value.trimEnd()}\n${event.target.value}\n`.trimStart();
  event.target.value = "";
  plan();
});
form.addEventListener("change", kindShown);
form.addEventListener("input", plan);
kindShown();
