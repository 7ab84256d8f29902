// Loads a Python that has symcomm in its memory from this folder, and answers one call after another.
import { loadPyodide } from "./py/pyodide.mjs";

async function fetched(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name} is missing (${answer.status})`);
  return answer;
}

async function unpacked(name) {
  const bytes = (await fetched(name)).body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(bytes).arrayBuffer());
}

// A part of the libraries, which few questions need. Python cannot wait for it: a worker may ask for a file and stand still.
self.late = (name) => {
  const asked = new XMLHttpRequest();
  asked.open("GET", name, false);
  asked.responseType = "arraybuffer";
  asked.send();
  if (asked.status !== 200) throw new Error(`${name} is missing (${asked.status})`);
  return new Uint8Array(asked.response);
};

// Pyodide copies the kept memory into that of its program, which begins smaller and has to grow before.
const memory = unpacked("memory.bin");
for (const way of ["instantiate", "instantiateStreaming"]) {
  const made = WebAssembly[way];
  WebAssembly[way] = async (...given) => {
    const found = await made(...given), own = found.instance?.exports.memory;
    if (own) own.grow(Math.max(0, Math.ceil(((await memory).length - own.buffer.byteLength) / 65536)));
    return found;
  };
}

let python;
const loaded = (async () => {
  const parts = ["symcomm.json", "answers.py", "questions.json"].map(fetched);
  for (const part of [memory, ...parts]) part.catch(() => {}); // told below, where it is waited for
  const here = new URL("./py/", import.meta.url).href;
  python = await loadPyodide({ indexURL: here, stdLibURL: `${here}none.zip`, _loadSnapshot: memory });
  for (const [name, text] of Object.entries(await (await parts[0]).json())) {
    python.FS.mkdirTree(name.slice(0, name.lastIndexOf("/")));
    python.FS.writeFile(name, text);
  }
  python.runPython(await (await parts[1]).text());
  const call = python.globals.get("call");
  const files = Object.entries(await (await parts[2]).json()); // the problem file first, then its worksheets
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
