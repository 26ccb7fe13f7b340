// Names in slices: remembered while a frame rasters its lanes, written when they are composed.

import { current } from "../../lib/kernel_names.js";
import { shortened } from "../model/shortened.js";

const MOST = 4096;
const SHORTENED = 50000;        // texts kept

export class SliceNames {
  constructor(context) {
    this.context = context;
    this.texts = new Map();     // "name id * 512 + characters" -> shortened text
    this.count = 0;
    this.x = new Float32Array(MOST);
    this.width = new Float32Array(MOST);
    this.line = new Uint16Array(MOST);
    this.name = new Uint32Array(MOST);
    this.colour = new Uint16Array(MOST);
    this.merged = new Uint32Array(MOST);
  }

  /** @param {number} merged slices that the entry stands for; 0: it is one */
  add(x, width, line, name, colour, merged) {
    const at = this.count;
    if (at >= MOST) return;
    this.x[at] = x;
    this.width[at] = width;
    this.line[at] = line;
    this.name[at] = name;
    this.colour[at] = colour;
    this.merged[at] = merged;
    this.count = at + 1;
  }

  /** Ink by ink: setting the fill style is dearer than the text. @param {{y: Float32Array, height: Float32Array}} lines */
  write(scene, lines) {
    const { context } = this, { palette } = scene;
    if (!this.count) return;
    context.font = scene.font;
    context.textBaseline = "middle";
    for (const ink of palette.inkColours) {
      context.fillStyle = ink;
      for (let i = 0; i < this.count; i++) if (palette.inks[this.colour[i]] === ink) this.writeOne(scene, lines, i);
    }
  }

  writeOne({ timeline, charPx }, lines, i) {
    const inner = this.width[i] - 8, room = Math.floor(inner / charPx);
    const counted = this.merged[i] ? `×${this.merged[i]}` : "";
    const name = this.shorten(timeline, this.name[i], room - (counted ? counted.length + 1 : 0));
    const text = counted && name ? `${name} ${counted}` : name || (counted.length <= room ? counted : "");
    if (!text) return;
    const line = this.line[i], slack = inner - text.length * charPx;
    this.context.fillText(text, this.x[i] + 4 + Math.max(slack / 2, 0), lines.y[line] + lines.height[line] / 2 + 0.5);
  }

  shorten(timeline, id, room) {
    if (room < 2) return "";
    const key = id * 512 + Math.min(room, 511);
    let text = this.texts.get(key);
    if (text === undefined) {
      const name = current() === "short" ? timeline.label(id) : timeline.name(id);
      if (!name) return "";
      text = shortened(name, room);
      if (this.texts.size > SHORTENED) this.texts.clear();
      this.texts.set(key, text);
    }
    return text;
  }
}
