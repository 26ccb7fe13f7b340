// The page of one timeline.

import "../lib/combobox.js"; // "Beside…"
import { open } from "./open.js";

open(document.getElementById("timeline"));
