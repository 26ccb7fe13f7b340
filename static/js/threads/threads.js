// A thread follows its rows; names are completed where somebody writes.

import "../lib/follow.js";
import "./mentions.js";
