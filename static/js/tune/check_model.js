// What of the page of a pasted kernel needs no document: names, texts of a count.

/** The name a file gets: that which it has, where it is one of a kernel file. @param {string} name @param {string} before */
export function fileName(name, before) {
  const base = name.split(/[\\/]/).pop() ?? "";
  return /\.(py|cu|cuh)$/.test(base) ? base.slice(-80) : before;
}

/** What is wrong with a file before it is read; "" where nothing is. @param {{size: number, name: string}} file @param {number} most bytes */
export function refusal(file, most) {
  if (!file.size) return `${file.name} is empty`;
  return file.size > most ? `${file.name}: ${file.size.toLocaleString("en")} bytes; at most ${most.toLocaleString("en")}` : "";
}

/**
 * Which of several texts holds the kernels: the first with a kernel in it. @param {string[]} texts @returns {number}
 */
export function kernelAt(texts) {
  const kernels = texts.map((text) => (text.match(/@triton\.(?:jit|autotune)|@(?:gluon\.)?jit\b|__global__|@helion\.kernel/g) ?? []).length);
  const at = kernels.findIndex((count) => count > 0);
  return at < 0 ? 0 : at;
}

/** What a form says of files that come with a kernel's. @param {string[]} names @returns {string} */
export const besideText = (names) => names.length ? `With it: ${names.join(", ")}` : "";

/** Expressions, one a line. @param {string} text @returns {string[]} */
export const rulesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** Words on what a constraint leaves out. @param {{reason: string, expression: string, left_out: number}} rule @returns {[string, string]} number, reason */
export const leftOut = (rule) => [rule.left_out.toLocaleString("en"), rule.expression && rule.expression !== rule.reason ? `${rule.reason}: ${rule.expression}` : rule.reason];
