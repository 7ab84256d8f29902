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
const home = python.runPython("import os, sysconfig; os.path.realpath(sysconfig.get_paths()['purelib'])"); // it begins with "//"
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

STANDARD = f"/lib/python{sys.version_info.major}{sys.version_info.minor}.zip"
files = [m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
used = {Path(file).relative_to(above).as_posix() for above in (home, STANDARD) for file in files if file.startswith(above + "/")}
if not {"sympy/__init__.py", "symcomm/__init__.py"} <= used:
    raise SystemExit(f"no byte code can be kept: nothing was imported from {home}")

def packed(source, target, chosen, beside=False):
    """The chosen files of an archive in another one, what was used as byte code; beside, the source goes with it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in filter(chosen, old.namelist()):
            data = {name: old.read(name)}
            if name in used and name.endswith(".py"):
                code = compile(data[name], name, "exec", dont_inherit=True, optimize=0 if beside else 2)
                above, _, stem = name.removesuffix(".py").rpartition("/")
                kept = f"{above}/__pycache__/{stem}.{sys.implementation.cache_tag}.pyc" if beside else f"{name}c"
                data = {**(data if beside else {}), kept: bytes(external._code_to_hash_pyc(code, bytes(8), False))}
            for one, written in data.items():
                new.writestr(zipfile.ZipInfo(one, (2020, 1, 1, 0, 0, 0)), written, zipfile.ZIP_DEFLATED, 9)
        for grammar in (FORMULA, MODULE) if beside else ():
            kept = f"symcomm/core/{grammar.folder}/{grammar.file}{KEPT}"
            new.writestr(zipfile.ZipInfo(kept, (2020, 1, 1, 0, 0, 0)), (Path(home) / kept).read_bytes(), zipfile.ZIP_DEFLATED, 9)

packed(STANDARD, "/standard.zip", lambda name: True)  # Pyodide's has sources only: they take two seconds of each start
packed("/plain.zip", "/libraries.zip", lambda name: not name.startswith("symcomm/"))  # which are read where they lie
packed("/plain.zip", "/symcomm.zip", lambda name: name.startswith("symcomm/"), beside=True)  # its registries look for sources
`);
for (const [name, made] of [["py/python_stdlib.zip", "standard"], ["libraries.zip", "libraries"], ["symcomm.zip", "symcomm"]]) {
  fs.writeFileSync(`${folder}/${name}`, python.FS.readFile(`/${made}.zip`));
}
