/* Loaded in <head> before the styles paint: the remembered theme, else the system's. js/lib/theme.js does the rest. */
(function () {
  var chosen = null;
  try { chosen = localStorage.getItem("ridgepoint.theme"); } catch (error) { /* storage is closed: follow the system */ }
  var dark = chosen === "dark" || (chosen !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-theme", dark ? "dark" : "light");
})();
