// The script of a static site: its engine, then the page, which asks it.
import * as _engine from "./start.js";
import * as _page from "../main.js";
