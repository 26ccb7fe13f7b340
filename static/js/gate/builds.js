// Builds: a choice shows at once; what the page says follows when runs arrive.

import "../lib/follow.js";

for (const form of document.querySelectorAll("form[data-submits]")) {
  form.addEventListener("change", (event) => {
    if (event.target.name === "suite") for (const other of form.querySelectorAll("[name=on], [name=branch], [name=kernel]")) other.disabled = true;
    form.requestSubmit();
  });
}
