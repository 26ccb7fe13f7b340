// The page of one timeline.

import { open } from "./open.js";

open(document.getElementById("timeline"));
