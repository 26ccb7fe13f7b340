// A name cut to the room of a slice.

const LEAST = 9;        // characters from which on a part of the arguments is shown too

/** The start of a name; of a kernel's label what stands in <…> as well, which tells it from its siblings. @param {string} name @param {number} room characters */
export function shortened(name, room) {
  if (name.length <= room) return name;
  const at = name.indexOf("<", 1);
  if (at < 0 || room < LEAST) return `${name.slice(0, room - 1)}…`;
  const told = name.slice(at), head = Math.max(Math.floor(room / 3), room - told.length) - 1;
  const rest = room - head - 1;
  if (head >= at) return `${name.slice(0, room - 1)}…`;
  return `${name.slice(0, head)}…${told.length <= rest ? told : `${told.slice(0, rest - 1)}…`}`;
}
