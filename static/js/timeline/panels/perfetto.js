// Hands a trace to Perfetto's viewer in another tab: this browser gives it the file, no server gets it from us.

const PING_MS = 200;
const PATIENCE_MS = 60_000;     // an air-gapped machine never answers

/**
 * @param {string} address of the viewer, "https://ui.perfetto.dev" or one of one's own
 * @param {{title: string, fileName: string, load: () => Promise<ArrayBuffer>, say: (text: string) => void}} trace
 * @returns {Promise<boolean>} was it handed over
 */
export async function openInPerfetto(address, { title, fileName, load, say }) {
  const origin = new URL(address).origin, tab = window.open(address);
  if (!tab) {
    say("The browser kept the new tab from opening: allow pop-ups for this page, or download the file and open it there.");
    return false;
  }
  try {
    say("Making the trace…");
    const buffer = await load();
    say(`Waiting for ${origin} to answer…`);
    await answered(tab, origin);
    tab.postMessage({ perfetto: { buffer, title, fileName } }, origin);
    say("Handed over to Perfetto in the other tab.");
    return true;
  } catch (error) {
    say(`${error.message}. Download the file and open it in Perfetto instead.`);
    return false;
  }
}

/** Perfetto answers PING with PONG once it can take a trace. */
function answered(tab, origin) {
  return new Promise((resolve, reject) => {
    const began = Date.now();
    const end = (done, value) => { clearInterval(timer); removeEventListener("message", heard); done(value); };
    const heard = (event) => { if (event.source === tab && event.origin === origin && event.data === "PONG") end(resolve); };
    const ping = () => {
      if (tab.closed) end(reject, new Error("the other tab was closed"));
      else if (Date.now() - began > PATIENCE_MS) end(reject, new Error(`${origin} did not answer: this machine may have no way there`));
      else tab.postMessage("PING", origin);
    };
    addEventListener("message", heard);
    const timer = setInterval(ping, PING_MS);
    ping();
  });
}
