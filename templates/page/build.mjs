// Run by `symcomm serve` in Node: tries the page's Python in the Pyodide of FOLDER, and keeps the memory of a started one.
// node build.mjs FOLDER PLAIN.zip
import fs from "node:fs";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

process.on("uncaughtException", (error) => { // Node would print the source of Pyodide with it
  console.error(String(error).trim().split("\n").slice(-8).join("\n"));
  process.exit(1);
});
const [folder, plain] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/py/pyodide.mjs`).href);
const answers = fs.readFileSync(`${folder}/answers.py`, "utf-8");
const files = Object.entries(JSON.parse(fs.readFileSync(`${folder}/questions.json`, "utf-8")));

const TRIED = `
import networkx, statistics, sympy.physics.units  # which only some questions import

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
`;

async function started(archive, options) {
  const python = await loadPyodide({ indexURL: `${folder}/py/`, ...options });
  const home = python.runPython("import os, sysconfig; os.path.realpath(sysconfig.get_paths()['purelib'])"); // it begins with "//"
  python.unpackArchive(archive, "zip", { extractDir: home });
  for (const [name, text] of files) python.FS.writeFile(name, text);
  python.globals.set("first", files[0][0]);
  python.globals.set("home", home);
  return python;
}

// First with sources, to see what is imported; that becomes byte code without what only a traceback shows.
const plainly = new Uint8Array(fs.readFileSync(plain));
const python = await started(plainly, {});
python.FS.writeFile("/plain.zip", plainly);
python.runPython(answers + TRIED + `
import importlib._bootstrap_external as external, io, re, sys, zipfile, zlib
from pathlib import Path
from symcomm.core.text.grammars import FORMULA, KEPT, MODULE

STANDARD = f"/lib/python{sys.version_info.major}{sys.version_info.minor}.zip"
placed = {name: module.__file__ for name, module in sys.modules.items() if getattr(module, "__file__", None)}
used = {Path(file).relative_to(above).as_posix(): name for above in (home, STANDARD)
        for name, file in placed.items() if file.startswith(above + "/")}
if not {"sympy/__init__.py", "symcomm/__init__.py"} <= used.keys():
    raise SystemExit(f"no byte code can be kept: nothing was imported from {home}")
in_memory = {file: name for file, name in used.items() if not file.startswith(("networkx/", "sympy/physics/", "unittest/"))}  # which few questions need

def bare(code):
    """Byte code without its table of lines: no 8 units of it have a place in a source."""
    whole, rest = divmod(len(code.co_code) // 2, 8)
    table = b"\\xff" * whole + bytes([0xF7 + rest] if rest else [])
    return code.replace(co_linetable=table, co_consts=tuple(bare(c) if hasattr(c, "co_code") else c for c in code.co_consts))

def compiled(name, data):
    code = compile(data, name, "exec", dont_inherit=True, optimize=0 if "/quantities/" in name else 2)  # their docstrings are read
    return bytes(external._code_to_hash_pyc(bare(code), bytes(8), False))

with zipfile.ZipFile("/plain.zip") as plain, zipfile.ZipFile(STANDARD) as standard:
    libraries = {name: plain.read(name) for name in plain.namelist() if not name.startswith("symcomm/")}
    libraries |= {name: standard.read(name) for name in standard.namelist()}
    symcomm = {name: plain.read(name) for name in plain.namelist() if name.startswith("symcomm/")}
libraries = {f"{name}c" if name in used else name: compiled(name, data) if name in used else data for name, data in libraries.items()}
cached = {f"{above}/__pycache__/{stem.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc": compiled(name, symcomm[name])
          for name in used.keys() & symcomm.keys() for above, _, stem in [name.rpartition("/")]}
for grammar in (FORMULA, MODULE):
    grammar.keep(Path(home) / "symcomm" / "core")
    kept = f"symcomm/core/{grammar.folder}/{grammar.file}{KEPT}"
    cached[kept] = (Path(home) / kept).read_bytes()

def packed(chosen):
    with zipfile.ZipFile(new := io.BytesIO(), "w") as archive:
        for name, data in sorted(chosen.items()):
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data)
    return new.getvalue()

def gzipped(data):
    return zlib.compress(data, 9, 31)  # all files at once: half of what each by itself takes

rest = {name: data for name, data in libraries.items() if name.removesuffix("c") not in in_memory}
for target, data in {
    "/libraries.zip": packed(libraries), "/symcomm.zip": packed(symcomm | cached), "/rest.bin": gzipped(packed(rest)),
    "/late.bin": gzipped(packed({name: data for name, data in rest.items() if name.removesuffix("c") in used})),
}.items():
    Path(target).write_bytes(data)
late = {name.partition("/")[0].partition(".")[0] for name in libraries}

def shipped(name, data):
    """What is kept of a file: schedules are found by its name, quantities by these lines."""
    return data.decode() if name not in used else b"".join(re.findall(rb"\\ndef derive\\w*\\(", data)).decode()

sources = {f"{home}/{name}": shipped(name, data) for name, data in symcomm.items()}
`);
const made = (name) => python.FS.readFile(`/${name}`);
const told = (name) => python.runPython(`json.dumps(sorted(${name}.items() if isinstance(${name}, dict) else ${name}))`);

// Then from byte code, which leaves a smaller memory: that of a Python that has imported what is used.
const kept = `${folder}/libraries.zip`;
fs.writeFileSync(kept, made("libraries.zip"));
const fresh = await started(made("symcomm.zip"), { _makeSnapshot: true, stdLibURL: kept });
fs.unlinkSync(kept);
fresh.globals.set("names", JSON.stringify(JSON.parse(told("in_memory")).map(([file, name]) => name)));
fresh.globals.set("late", told("late"));
fresh.runPython(`
import gc, importlib, json, os, sys, types, zipimport
from importlib.machinery import PathFinder

stub = types.ModuleType("unittest.mock")  # typeguard lets its Mock through: the page has none, so the memory needs no tests
stub.Mock = stub.patch = type("Mock", (), {})
sys.modules |= {"unittest": stub, "unittest.mock": stub}
for name in json.loads(names):
    importlib.import_module(name)
del sys.modules["unittest"], sys.modules["unittest.mock"], stub

class Late:
    """Finds what is not in the memory: the page then fetches what few questions need, and after it all the rest."""

    names = frozenset(json.loads(late))
    files = ["rest.bin", "late.bin"]

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = None
        while found is None and cls.files and name.partition(".")[0] in cls.names:
            import js, zlib

            with open("/lib/python314.zip", "wb") as archive:
                archive.write(zlib.decompress(js.late(cls.files.pop()).to_bytes(), 31))
            sys.path_importer_cache.clear()
            zipimport._zip_directory_cache.clear()
            found = PathFinder.find_spec(name, path)
        return found

sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, Late)
del names, late
sys.path_importer_cache.clear()
zipimport._zip_directory_cache.clear()
gc.collect()
held = [bytes(size) for size in (1 << 14, 1 << 16, 1 << 18) for _ in range((1 << 22) // size)]  # what was freed becomes zeros
del held
`);
fs.writeFileSync(`${folder}/memory.bin`, gzipSync(fresh.makeMemorySnapshot(), { level: 9 }));
for (const name of ["late.bin", "rest.bin"]) fs.writeFileSync(`${folder}/${name}`, made(name));
for (const [name, text] of [["symcomm.json", JSON.stringify(Object.fromEntries(JSON.parse(told("sources"))))]]) {
  fs.writeFileSync(`${folder}/${name}`, text);
  fs.writeFileSync(`${folder}/${name}.gz`, gzipSync(text, { level: 9 }));
}
fs.writeFileSync(`${folder}/py/none.zip`, Buffer.from("PK\x05\x06".padEnd(22, "\0"), "latin1")); // Pyodide wants one at its start
