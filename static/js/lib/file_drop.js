// A form that takes a file: chosen, or dropped on it. What becomes of the file, and of others that come with it, is the page's.

/** @param {HTMLFormElement} form @param {HTMLInputElement} chosen type=file @param {(file: File, others: File[]) => void} take */
export function takeFiles(form, chosen, take) {
  chosen.addEventListener("change", () => { if (chosen.files.length) take(chosen.files[0], [...chosen.files].slice(1)); });
  const holds = (event) => event.dataTransfer?.types.includes("Files");
  form.addEventListener("dragover", (event) => { if (holds(event)) { event.preventDefault(); form.classList.add("over"); } });
  form.addEventListener("dragleave", () => form.classList.remove("over"));
  form.addEventListener("drop", (event) => {
    form.classList.remove("over");
    if (!holds(event)) return;
    event.preventDefault();
    event.stopPropagation();       // base/drop.js would upload it as a profile
    const [file, ...others] = event.dataTransfer.files;
    if (file) take(file, others);
  });
}
