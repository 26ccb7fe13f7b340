// What stands below the screen and takes long to make waits until it comes near.

const NEAR = "200px"; // below the screen and above it
const RESTS_MS = 1500; // after the page is there: then it is made all the same, for who prints or leaps to it

/** @param {() => void} act once the page is there with all its files */
function afterLoad(act) {
  if (document.readyState === "complete") act(); else addEventListener("load", act, { once: true });
}

/** @param {Element} element @returns {Promise<void>} once it is near the screen, the page rests, or is printed */
export function whenNear(element) {
  return new Promise((resolve) => {
    const observer = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) begin(); }, { rootMargin: `${NEAR} 0px` });
    const begin = () => { observer.disconnect(); removeEventListener("beforeprint", begin); resolve(); };
    observer.observe(element);
    addEventListener("beforeprint", begin);
    afterLoad(() => setTimeout(() => requestIdleCallback(begin), RESTS_MS));
  });
}
