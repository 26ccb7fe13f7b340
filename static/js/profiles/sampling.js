// The page of a launch over time: its table, and another launch at once.


document.getElementById("sampling-launch")?.addEventListener("change", (event) => {
  const url = new URL(location.href);
  url.searchParams.set("launch", /** @type {HTMLSelectElement} */ (event.target).value);
  location.assign(url);
});
