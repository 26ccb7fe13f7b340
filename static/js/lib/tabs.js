// Tabs of one page: links with ?tab=name that show a panel without asking the server, which shows the same one for the address.

/**
 * @param {HTMLElement} nav of links with data-tab=name, whose panel is #tab-name @param {(name: string) => void} onShow after a panel is shown
 * @returns {{show: (name: string) => void, now: () => string}}
 */
export function tabs(nav, onShow = () => {}) {
  const links = /** @type {HTMLAnchorElement[]} */ ([...nav.querySelectorAll("a[data-tab]")]);
  const now = () => links.find((link) => link.hasAttribute("aria-current"))?.dataset.tab ?? links[0].dataset.tab;

  function show(name) {
    for (const link of links) {
      const on = link.dataset.tab === name;
      if (on) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
      document.getElementById(`tab-${link.dataset.tab}`).hidden = !on;
    }
    onShow(name);
  }

  function go(name) {
    if (name === now()) return;
    const url = new URL(location.href);
    if (name === links[0].dataset.tab) url.searchParams.delete("tab"); else url.searchParams.set("tab", name);
    history.pushState(history.state, "", url);
    show(name);
  }

  for (const link of links) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(link.dataset.tab);
    });
  }
  nav.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], at = links.indexOf(/** @type {any} */ (document.activeElement));
    if (!step || at < 0) return;
    event.preventDefault();
    links[(at + step + links.length) % links.length].focus();
  });
  addEventListener("popstate", () => {
    const asked = new URL(location.href).searchParams.get("tab"), name = links.some((link) => link.dataset.tab === asked) ? asked : links[0].dataset.tab;
    if (name !== now()) show(name);
  });
  return { show: go, now };
}
