// Loaded with --import: makes "@ag-ui/client" the version that CLIENT_VERSION names.
import { register } from "node:module";
const name = { "0.0.57": "client057", "0.0.59": "client059" }[process.env.CLIENT_VERSION];
if (name) {
  const hook = `export const resolve = (s, c, next) => next(s === "@ag-ui/client" ? ${JSON.stringify(name)} : s, c);`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`, import.meta.url);
}
