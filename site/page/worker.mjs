// Loads Python and symcomm from this folder, and answers calls one after another.
import { loadPyodide } from "./py/pyodide.mjs";

const text = (name) => fetch(name).then((answer) => answer.text());
const loaded = (async () => {
  const bundle = fetch("symcomm.zip").then((answer) => answer.arrayBuffer());
  const python = await loadPyodide({ indexURL: new URL("./py/", import.meta.url).href });
  python.unpackArchive(await bundle, "zip", { extractDir: python.runPython("import sysconfig; sysconfig.get_paths()['purelib']") });
  python.FS.writeFile("questions.md", await text("questions.md"));
  python.runPython(await text("answers.py"));
  postMessage({ questions: JSON.parse(python.globals.get("questions")()) });
  return python;
})();
loaded.catch((error) => postMessage({ failed: String(error).split("\n").slice(-2).join(" ") }));

onmessage = async ({ data: { id, call, args } }) => {
  const python = await loaded;
  postMessage({ id, result: JSON.parse(python.globals.get(call)(...args)) });
};
