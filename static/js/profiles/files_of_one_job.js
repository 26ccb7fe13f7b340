// Whether files say themselves that they are ranks of one job: PyTorch writes rank and world size before the records.

const HEAD_BYTES = 1 << 18;
const SAYS = /"distributedInfo"\s*:\s*\{[^{}[\]]*/;

/** Rank and size of the world as the start of a trace states them, or null. @param {string} head @returns {{rank: number, size: number}|null} */
export function statedRank(head) {
  const said = SAYS.exec(head)?.[0] ?? "";
  const rank = /"rank"\s*:\s*(\d{1,7})\b/.exec(said), size = /"world_size"\s*:\s*(\d{1,7})\b/.exec(said);
  return rank && size ? { rank: Number(rank[1]), size: Number(size[1]) } : null;
}

/** All of one world, each of another rank. @param {({rank: number, size: number}|null)[]} stated */
export function areOneJob(stated) {
  return stated.length > 1 && stated.every((each) => each !== null && each.size > 1 && each.size === stated[0]?.size && each.rank < each.size)
    && new Set(stated.map((each) => each?.rank)).size === stated.length;
}

/** The first bytes of a file as text, unpacked where it is gzipped; "" where they cannot be had. @param {Blob} file */
export async function headOf(file) {
  const start = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  if (start[0] !== 0x1f || start[1] !== 0x8b) return new TextDecoder().decode(start);
  let text = "";
  try {
    const decoder = new TextDecoder();
    for await (const part of new Blob([start]).stream().pipeThrough(new DecompressionStream("gzip"))) {
      text += decoder.decode(part, { stream: true });
      if (text.length >= HEAD_BYTES) break;
    }
  } catch { /* the slice ends within the stream: what came before it counts */ }
  return text;
}

/** @param {Iterable<File>} files */
export async function sayOneJob(files) {
  return areOneJob(await Promise.all([...files].slice(0, 256).map(async (file) => statedRank(await headOf(file)))));
}
