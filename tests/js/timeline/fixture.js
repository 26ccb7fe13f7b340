// Tiles and tracks for the timeline's tests, written as rows.

/**
 * Encode a tile as the API does. @param {[number, {start: number, dur: number, name?: number, count?: number, slice?: number,
 * depth?: number, category?: number, flags?: number, fill?: number}[], [number, number][]?, [number, number]?][]} tracks
 *   [id, rows, samples, first and last depth]
 */
export function encodeTile(tracks) {
  const rows = tracks.flatMap(([, r]) => r), samples = tracks.flatMap(([, , s]) => s ?? []);
  const head = align(8 + 16 * tracks.length), body = align(head + rows.length * (8 + 8 + 4 + 4 + 4 + 2 + 1 + 1 + 1));
  const view = new DataView(new ArrayBuffer(body + samples.length * 16));
  view.setUint32(0, 0x32545052, true);
  view.setUint32(4, tracks.length, true);
  tracks.forEach(([id, r, s, depths = [0, 0xffff]], i) => [id, r.length, s?.length ?? 0, depths[0] + depths[1] * 65536].forEach((n, j) => view.setUint32(8 + i * 16 + j * 4, n, true)));
  let at = head;
  const column = (key, bytes, set, usual) => rows.forEach((row) => { set(at, row[key] ?? usual); at += bytes; });
  const f64 = (o, v) => view.setFloat64(o, v, true), u32 = (o, v) => view.setUint32(o, v, true);
  column("start", 8, f64, 0);
  column("dur", 8, f64, 0);
  column("name", 4, u32, 0);
  column("count", 4, u32, 1);
  column("slice", 4, u32, 0);
  column("depth", 2, (o, v) => view.setUint16(o, v, true), 0);
  column("category", 1, (o, v) => view.setUint8(o, v), 0);
  column("flags", 1, (o, v) => view.setUint8(o, v), 0);
  column("fill", 1, (o, v) => view.setUint8(o, v), 255);
  at = body;
  samples.forEach(([t]) => { f64(at, t); at += 8; });
  samples.forEach(([, v]) => { f64(at, v); at += 8; });
  return view.buffer;
}

const align = (n) => Math.ceil(n / 8) * 8;

/** Answer of GET …/timeline/ for two streams and a thread. */
export function metaOf(endNs = 1_000_000, extra = {}) {
  const track = (id, kind, name, group, depths, sort) => ({ id, kind, name, group, depths, slices: 10, sort, unit: null });
  return {
    id: 1, name: "t", start_ns: 0, end_ns: endNs, levels: 1 + Math.max(Math.ceil(Math.log2(endNs / 1024) / 2), 0), tile_bins: 1024, steps: [], integrity: {},
    tracks: [track(0, "thread", "thread 1 (python)", "python (1)", 3, 0), track(1, "stream", "stream 7", "GPU 0", 1, 10), track(2, "stream", "stream 8", "GPU 0", 2, 11), track(3, "counter", "memory", "GPU 0", 1, 12)],
    ...extra,
  };
}
