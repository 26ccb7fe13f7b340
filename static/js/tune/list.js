// The list of jobs follows their starts and ends: the answer by itself, the table with the next visit or this notice.

import { watch } from "../lib/live.js";
import { refreshSoon } from "../lib/refresh.js";

watch(["home"], ({ event }) => { if (event === "tune") refreshSoon(); });
