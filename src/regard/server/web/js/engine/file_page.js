// The script of a page that is one file with a model inside: its engine, then the page, which asks it.
import * as _engine from "./file.js";
import * as _page from "../main.js";
