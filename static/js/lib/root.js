/** Before every address of the site: "/", or with the project that is worked in and the folder that a proxy serves it from. */
export const root = globalThis.document?.body?.dataset.root ?? "/";
