// The report's one button: the browser's own print dialogue, which also saves as PDF.

document.getElementById("print")?.addEventListener("click", () => window.print());
