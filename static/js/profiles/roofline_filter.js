// Which dots of the roofline pass the filters. No DOM, no Bokeh.

/**
 * Which dots pass.
 * @param {{name: string, short_name: string, precision_label: string, bound: string, profile_id: number|string, time_ns: number}} point
 * @param {{q: string, precisions: Set<string>|null, bounds: Set<string>|null, profiles: Set<string>|null, minNs: number}} filter
 *   null: all of them
 */
export function passes(point, filter) {
  const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${point.short_name} ${point.name}`.toLowerCase();
  return words.every((word) => text.includes(word)) && point.time_ns >= filter.minNs
    && among(point.precision_label, filter.precisions) && among(point.bound, filter.bounds) && among(String(point.profile_id), filter.profiles);
}

/** @param {string} value @param {Set<string>|null|undefined} chosen */
function among(value, chosen) {
  return !chosen || chosen.has(value);
}

/** Columns of a data source reduced to some rows. @param {Record<string, any>} columns @param {boolean[]} keep */
export function reduced(columns, keep) {
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, Array.from(values).filter((_, index) => keep[index])]));
}
