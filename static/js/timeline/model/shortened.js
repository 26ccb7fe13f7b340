// A name cut to the room of a slice.

const LEAST = 9;        // characters from which on a part of the arguments is shown too
const OF_NUMBER = /[\d.,]/;

/** The first `room` characters, the last of them "…"; never a part of a number, which would be another number. */
export function cutAt(text, room) {
  let at = Math.max(room - 1, 0);
  while (at > 0 && OF_NUMBER.test(text[at]) && OF_NUMBER.test(text[at - 1])) at--;
  return `${text.slice(0, at)}…`;
}

/** The start of a name; of a kernel's label what stands in <…> as well, which tells it from its siblings. @param {string} name @param {number} room characters */
export function shortened(name, room) {
  if (name.length <= room) return name;
  const at = name.indexOf("<", 1);
  if (at < 0 || room < LEAST) return cutAt(name, room);
  const told = name.slice(at), head = Math.max(Math.floor(room / 3), room - told.length) - 1;
  const rest = room - head - 1;
  if (head >= at) return cutAt(name, room);
  return `${cutAt(name, head + 1)}${told.length <= rest ? told : cutAt(told, rest)}`;
}
