// Colours of slices as 32-bit pixels, made once per theme from the CSS custom properties of the categories.

import { CATEGORIES, SHADES } from "./model.js";

// Hue (degrees) and lightness (0-1) steps of the shades: kernels differ, the category stays recognisable.
const STEPS = [[0, 0], [-9, 0.07], [9, -0.06], [-4, -0.1], [5, 0.11], [14, 0.03], [-14, -0.03], [0, 0.16]];
const INK_TURNS = 0.179;        // luminance at which black and white text are equally easy to read
const CATEGORY_SLOTS = 16;
export const OWN_SLOTS = 1024;  // colours that programs gave to their ranges (NVTX, cname), behind those of the categories
const OWN = CATEGORY_SLOTS * SHADES;
const VARIANT = OWN + OWN_SLOTS;
const SOFT_STEPS = 8;           // of merged entries: from hardly busy to always busy
const SOFT_MIX = 0.62;          // of the panel's colour in what is hardly busy

/** Offsets into `Palette.pixels`: add category * SHADES + shade. Slices, what a search did not find, and merged of it. */
export const EXACT = 0;
export const DIM = VARIANT;
export const DIM_SOFT = 2 * VARIANT;
const SOFT = 3 * VARIANT;
/** Offset for a merged entry that slices fill to a share of 0…255. */
export const soft = (fill) => SOFT + (fill >> 5) * VARIANT;

/**
 * @param {(property: string) => string} css value of a custom property as "#rrggbb"
 * @param {string[]} own colours as "#rrggbb" that the profile gives to names, at most OWN_SLOTS
 * @returns {{pixels: Uint32Array, fills: string[], inks: string[], [name: string]: any}} pixels are 0xAABBGGRR
 */
export function makePalette(css, own = []) {
  const panel = rgb(css("--panel")), variants = 3 + SOFT_STEPS;
  const pixels = new Uint32Array(variants * VARIANT);
  const fills = new Array(variants * VARIANT).fill(""), inks = new Array(variants * VARIANT).fill("");
  const fill = (exact, place) => {
    const colours = [exact, mix(exact, panel, 0.76), mix(exact, panel, 0.84)];
    for (let step = 0; step < SOFT_STEPS; step++) colours.push(mix(exact, panel, SOFT_MIX * (1 - step / (SOFT_STEPS - 1)) + 0.08));
    colours.forEach((colour, v) => {
      const at = v * VARIANT + place;
      pixels[at] = pixel(colour);
      fills[at] = hex(colour);
      inks[at] = v === 1 || v === 2 ? css("--muted") : luminance(colour) > INK_TURNS ? "#000000" : "#ffffff";
    });
  };
  CATEGORIES.forEach((category, c) => {
    const base = rgb(css(category.css));
    for (let shade = 0; shade < SHADES; shade++) {
      const full = shift(base, ...STEPS[shade]);
      fill(category.faint ? mix(full, panel, 0.5) : full, c * SHADES + shade);
    }
  });
  own.slice(0, OWN_SLOTS).forEach((colour, number) => fill(rgb(colour), OWN + number));
  const plain = Object.fromEntries(["bg", "panel", "raised", "line", "text", "muted", "accent", "accent-ink", "warn", "bad"].map((k) => [k, css(`--${k}`)]));
  return { pixels, fills, inks, inkColours: [...new Set(inks.filter(Boolean))], ...plain, panelRgb: panel };
}

/** Colour of category c, shade s in a variant. */
export const slot = (variant, category, shade) => variant + category * SHADES + shade;

/** The profile's own colour number n (from 1, as `Timeline.own` has them) in a variant. */
export const ownSlot = (variant, n) => variant + OWN + n - 1;

export function rgb(text) {
  const value = /^#([0-9a-f]{6})/i.exec(text.trim())?.[1] ?? "888888";
  return [0, 2, 4].map((i) => parseInt(value.slice(i, i + 2), 16));
}

export const mix = (a, b, share) => a.map((x, i) => Math.round(x + (b[i] - x) * share));
export const pixel = ([r, g, b], alpha = 255) => ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
export const hex = (colour) => `#${colour.map((x) => x.toString(16).padStart(2, "0")).join("")}`;

/** WCAG relative luminance, 0-1. */
export function luminance(colour) {
  const [r, g, b] = colour.map((x) => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function shift(colour, degrees, light) {
  const [h, s, l] = toHsl(colour);
  return fromHsl((h + degrees + 360) % 360, s, Math.min(Math.max(l + light, 0.18), 0.86));
}

function toHsl([r, g, b]) {
  const [R, G, B] = [r / 255, g / 255, b / 255];
  const max = Math.max(R, G, B), min = Math.min(R, G, B), l = (max + min) / 2, d = max - min;
  if (!d) return [0, 0, l];
  const s = d / (1 - Math.abs(2 * l - 1));
  const h = max === R ? ((G - B) / d) % 6 : max === G ? (B - R) / d + 2 : (R - G) / d + 4;
  return [(h * 60 + 360) % 360, s, l];
}

function fromHsl(h, s, l) {
  const a = s * Math.min(l, 1 - l);
  return [0, 8, 4].map((n) => {
    const k = (n + h / 30) % 12;
    return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  });
}
