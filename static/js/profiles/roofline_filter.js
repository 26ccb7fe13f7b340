// Which dots of the roofline pass the filters. No DOM, no Bokeh.

/**
 * Which dots pass. @param {{name: string, short_name: string, precision_label: string, time_ns: number}} point
 * @param {{q: string, precisions: Set<string>|null, minNs: number}} filter
 */
export function passes(point, filter) {
  const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${point.short_name} ${point.name}`.toLowerCase();
  return words.every((word) => text.includes(word)) && point.time_ns >= filter.minNs && (!filter.precisions || filter.precisions.has(point.precision_label));
}

/** Columns of a data source reduced to some rows. @param {Record<string, any>} columns @param {boolean[]} keep */
export function reduced(columns, keep) {
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, Array.from(values).filter((_, index) => keep[index])]));
}
