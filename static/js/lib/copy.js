// Buttons [data-copy="id"] copy the text of that element; also those that come with a later refresh of the page's parts.

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? event.target.closest("button[data-copy]") : null;
  const text = button && document.getElementById(button.dataset.copy ?? "")?.textContent;
  if (!text) return;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { // no permission, or not a secure page: select it, so that Ctrl+C does it
    getSelection()?.selectAllChildren(document.getElementById(button.dataset.copy ?? "") ?? button);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
