/* Loaded in <head> before the styles paint: the remembered theme, else the system's, and widths of columns. js/lib/theme.js does the rest. */
(function () {
  var chosen = null;
  try { chosen = localStorage.getItem("ridgepoint.theme"); } catch (error) { /* storage is closed: follow the system */ }
  var dark = chosen === "dark" || (chosen !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-theme", dark ? "dark" : "light");
  try {                                     /* widths of columns that somebody set (js/grid/widths.js): nothing moves when it begins */
    var css = "";
    for (var at = 0; at < localStorage.length; at++) {
      var key = localStorage.key(at);
      if (key.indexOf("ridgepoint.widths.") === 0) css += (JSON.parse(localStorage.getItem(key)).css || "") + "\n";
    }
    if (css) {
      var sheet = new CSSStyleSheet();
      sheet.replaceSync(css);
      document.adoptedStyleSheets = [sheet];
    }
  } catch (error) { /* storage is closed, or holds something else: columns are as wide as what they hold */ }
})();
