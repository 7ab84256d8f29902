// Run by `symcomm serve` in Node: tries the page's Python in the Pyodide of FOLDER, and keeps what it imported as byte code.
// node build.mjs FOLDER PLAIN.zip
import fs from "node:fs";
import { pathToFileURL } from "node:url";

process.on("uncaughtException", (error) => { // Node would print the source of Pyodide with it
  console.error(String(error).trim().split("\n").slice(-8).join("\n"));
  process.exit(1);
});
const [folder, plain] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/py/pyodide.mjs`).href);
const python = await loadPyodide({ indexURL: `${folder}/py/` });
const home = python.runPython("import sysconfig; sysconfig.get_paths()['purelib']");
python.FS.writeFile("/plain.zip", new Uint8Array(fs.readFileSync(plain)));
python.unpackArchive(new Uint8Array(fs.readFileSync(plain)), "zip", { extractDir: home });
const files = Object.entries(JSON.parse(fs.readFileSync(`${folder}/questions.json`, "utf-8")));
for (const [name, text] of files) python.FS.writeFile(name, text);
python.globals.set("first", files[0][0]);
python.globals.set("home", home);
python.runPython(fs.readFileSync(`${folder}/answers.py`, "utf-8"));
python.runPython(`
import importlib._bootstrap_external as external, sys, zipfile
import networkx, sympy.physics.units  # which only some questions import
from pathlib import Path
from symcomm.core.text.grammars import FORMULA, KEPT, MODULE

for grammar in (FORMULA, MODULE):
    grammar.keep(Path(home) / "symcomm" / "core")

def tried(name, *arguments):
    found = json.loads(call(name, json.dumps(arguments)))
    if "error" in found or "bug" in found:
        raise SystemExit(f"the page's own check failed: {name}: {found}")
    return found

table = "| Computation | Input | Output |\\n|---|---|---|\\n| y = xW | x [B, D], W [D, D] | y [B, D] |\\n"
for question in tried("open", first):
    try:
        tried("check", question["name"], "2 GB", "en")
    except SystemExit as error:  # one that cannot be derived is told on the page
        print(error)
tried("derive", json.dumps({"model_type": "gpt2", "vocab_size": 128, "n_positions": 64, "n_embd": 64, "n_layer": 2,
                            "n_head": 2}), "parameters", "", "en")
for language in ("en", "de", "zh"):
    tried("derive", table, "communication", "data(k)", language)
tried("at", {"D": "64"}, "D", ["64"], "en")

used = {Path(m.__file__).relative_to(home).as_posix() for m in list(sys.modules.values())
        if (getattr(m, "__file__", None) or "").startswith(home + "/")}
with zipfile.ZipFile("/plain.zip") as packed, zipfile.ZipFile("/out.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
    def put(name, data):
        out.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

    for name in packed.namelist():
        data = packed.read(name)
        if name not in used:
            put(name, data)
            continue
        ours = name.startswith("symcomm/")  # whose registries read docstrings and look for sources
        code = compile(data, name, "exec", dont_inherit=True, optimize=0 if ours else 2)
        made = bytes(external._code_to_hash_pyc(code, bytes(8), False))
        if ours:
            put(name, data)
        stem, _, _ = name.rpartition(".")
        above, _, last = stem.rpartition("/")
        put(f"{above}/__pycache__/{last}.{sys.implementation.cache_tag}.pyc" if ours else f"{stem}.pyc", made)
    for grammar in (FORMULA, MODULE):
        kept = f"symcomm/core/{grammar.folder}/{grammar.file}{KEPT}"
        put(kept, (Path(home) / kept).read_bytes())
`);
fs.writeFileSync(`${folder}/symcomm.zip`, python.FS.readFile("/out.zip"));
