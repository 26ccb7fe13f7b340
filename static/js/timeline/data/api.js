// The only module that talks to the server: addresses of one profile's timeline and the two ways to read them.

import { BAND, FIRST_KERNEL_LANE, isKernelLane, unitDepth, unitTrack } from "./tiles.js";

/** Addresses of one profile's timeline API and the two ways to read them. */
export class Api {
  /** @param {string} base "/api/profiles/3/" @param {(url: string, options?: object) => Promise<any>} getJson */
  constructor(base, getJson) {
    this.base = base;
    this.getJson = getJson;
  }

  url(path, parameters = {}) {
    const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null));
    return `${this.base}${path}${query.size ? `?${query}` : ""}`;
  }

  timeline() { return this.getJson(this.url("timeline/")); }
  names(ids = undefined) { return this.getJson(this.url("names/", { ids: ids?.join(",") })); }
  kernelTracks() { return this.getJson(this.url("kernel-tracks/")); }
  density(signal) { return this.bytes("density/", {}, signal); }
  /** @param {?{start: number, end: number}} view of many linked slices, those nearest to it are told */
  slice(id, signal, view = null) {
    const shown = view && { start: Math.max(Math.floor(view.start), 0), end: Math.max(Math.ceil(view.end), 0) };
    return this.getJson(this.url(`slices/${id}/`, shown ?? {}), { signal });
  }
  slices(parameters, signal) { return this.getJson(this.url("slices/", parameters), { signal }); }
  hits(parameters, signal) { return this.getJson(this.url("hits/", parameters), { signal }); }
  criticalPath(parameters, signal) { return this.getJson(this.url("critical-path/", parameters), { signal }); }
  selection(parameters, signal) { return this.getJson(this.url("selection/", parameters), { signal }); }

  /** Whole tracks of a tile. @param {number[]} tracks @returns {Promise<ArrayBuffer>} */
  tile(level, index, tracks, signal) {
    if (isKernelLane(tracks[0])) return this.kernels(level, index, tracks, signal);
    return this.bytes(`tiles/${level}/${index}/`, { tracks: tracks.join(",") }, signal);
  }

  /** Some units of a tile. @param {number[]} units ascending @returns {Promise<ArrayBuffer>} */
  units(level, index, units, signal) {
    if (isKernelLane(unitTrack(units[0]))) return this.kernels(level, index, units.map(unitTrack), signal);
    const lanes = units.map((unit) => `${unitTrack(unit)}:${unitDepth(unit)}-${unitDepth(unit) + BAND - 1}`).join(",");
    return this.bytes(`tiles/${level}/${index}/`, { lanes }, signal);
  }

  kernels(level, index, tracks, signal) {
    return this.bytes(`kernel-tiles/${level}/${index}/`, { kernels: tracks.map((track) => track - FIRST_KERNEL_LANE).join(",") }, signal);
  }

  async bytes(path, parameters, signal) {
    const answer = await fetch(this.url(path, parameters), { signal, credentials: "same-origin" })
      .catch((error) => { throw error.name === "AbortError" ? error : new Error("the server cannot be reached"); });
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw Object.assign(new Error(problem.error ?? problem.detail ?? `the server answered ${answer.status}`), { status: answer.status });
    }
    return answer.arrayBuffer();
  }
}
