// Loads Python and symcomm from this folder, and answers one call after another.
import { loadPyodide } from "./py/pyodide.mjs";

async function fetched(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name} is missing (${answer.status})`);
  return answer;
}

const loaded = (async () => {
  const parts = ["symcomm.zip", "libraries.zip", "answers.py", "questions.json"].map(fetched);
  parts.forEach((part) => part.catch(() => {})); // told below, where it is waited for
  const python = await loadPyodide({ indexURL: new URL("./py/", import.meta.url).href });
  python.FS.writeFile("/lib/libraries.zip", new Uint8Array(await (await parts[1]).arrayBuffer())); // read where it lies
  const folder = python.runPython("import sys, sysconfig; sys.path.append('/lib/libraries.zip'); sysconfig.get_paths()['purelib']");
  python.unpackArchive(await (await parts[0]).arrayBuffer(), "zip", { extractDir: folder });
  python.runPython(await (await parts[2]).text());
  const call = python.globals.get("call");
  const files = Object.entries(await (await parts[3]).json()); // the problem file first, then its worksheets
  for (const [name, text] of files) python.FS.writeFile(name, text);
  return { call, opened: JSON.parse(call("open", JSON.stringify([files[0][0]]))) };
})();
loaded.then(({ opened }) => postMessage({ opened }), (error) => postMessage({ failed: last(error) }));

const last = (error) => String(error).trim().split("\n").at(-1).slice(0, 300);

onmessage = async ({ data: { id, name, args } }) => {
  const { call } = await loaded;
  try { postMessage({ id, result: JSON.parse(call(name, JSON.stringify(args))) }); }
  catch (error) { postMessage({ id, broken: last(error) }); } // the interpreter itself ended: the page starts another one
};
