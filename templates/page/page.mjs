// The page: what is typed goes to a worker that runs symcomm. One that takes longer than LIMIT is ended and another begins.
import { plot } from "./plot.mjs";
import { WORDS } from "./words.mjs";

const LIMIT = 20000, READS = 500, LARGEST = 200000, LONGEST_LINK = 30000;
const FIELDS = ["language", "question", "answer", "table", "quantity", "strategy"];
const at = (id) => document.getElementById(id);
const buttons = document.querySelectorAll("form button");
let worker, ready = false, first = true, stated = "loading", waiting = new Map(), count = 0, questions = [], symbols = [], derived = null;

const say = (key) => WORDS[at("language").value][key];
const state = (key, more = "") => { stated = key; at("state").textContent = say(key) + more; };
const lines = (output, texts) =>
  output.replaceChildren(...texts.filter(Boolean).map((text) => Object.assign(document.createElement("p"), { textContent: text })));
const ours = (html) => Object.assign(document.createElement("p"), { innerHTML: html }); // made by symcomm, which escapes what was typed

function start() {
  ready = false;
  for (const button of buttons) button.disabled = true;
  worker = new Worker("worker.mjs", { type: "module" });
  worker.onerror = (event) => { event.preventDefault(); state("failed", event.message || ""); };
  worker.onmessage = ({ data }) => {
    if (data.failed) return state("failed", data.failed);
    if (data.opened) return opened(data.opened);
    const one = waiting.get(data.id);
    if (!one) return;
    if (data.broken) return again(say("bug") + data.broken);
    waiting.delete(data.id);
    clearTimeout(one.timer);
    one.done(data.result.bug ? { error: say("bug") + data.result.bug } : data.result);
  };
}

function opened(found) {
  ready = true;
  for (const button of buttons) button.disabled = false;
  state("ready");
  at("checking").querySelector("button").disabled = !first && !questions.length;
  if (!first) return;
  first = false;
  if (!found.length) { // the rest of the page works without its questions
    at("checking").querySelector("button").disabled = true;
    lines(at("verdict"), [say("none"), ...(found.error ?? found.bug ?? "").split("\n")]);
    if (kept?.values) derive(kept.values);
    return;
  }
  questions = found;
  const chosen = kept?.question;
  at("question").replaceChildren(...questions.map((one) => new Option(one.words, one.name)));
  if (questions.some((one) => one.name === chosen)) at("question").value = chosen;
  else if (chosen) lines(at("verdict"), [say("noQuestion") + chosen.slice(0, 60)]);
  given();
  if (kept?.values) derive(kept.values);
  warm();
}

function again(why) {
  worker.terminate();
  for (const one of waiting.values()) { clearTimeout(one.timer); one.done({ error: why }); }
  waiting = new Map();
  start();
  state("again");
}

function ask(name, ...args) {
  return new Promise((done) => {
    const id = ++count, timer = setTimeout(() => again(say("slow")), LIMIT);
    waiting.set(id, { done, timer });
    worker.postMessage({ id, name, args });
  });
}

// While a student reads and types, the worker derives what an answer will need. Nobody waits for it, so it has no limit of its own.
const warm = () => setTimeout((name) => { if (ready && name === at("question").value) worker.postMessage({ id: 0, name: "warm", args: [name] }); }, READS, at("question").value);

function given() {
  const text = questions.find((one) => one.name === at("question").value)?.given;
  at("given").textContent = text ? `${say("given")}: ${text}` : "";
}

function speak() {
  document.documentElement.lang = at("language").value;
  document.title = "symcomm: " + say("title");
  for (const one of document.querySelectorAll("[data-say]")) one.textContent = say(one.dataset.say);
  state(stated);
  given();
}

at("question").onchange = () => { given(); warm(); };
at("language").onchange = () => { speak(); if (derived && ready) derive(numbers()); };

at("checking").onsubmit = async (event) => {
  event.preventDefault();
  if (!ready || !questions.length) return;
  const output = at("verdict");
  if (at("answer").value.length > LARGEST) return lines(output, [say("long")]);
  const found = await ask("check", at("question").value, at("answer").value, at("language").value);
  output.dataset.verdict = found.verdict ?? "refused";
  lines(output, found.error ? [found.error] : [say(found.verdict), ...found.says, found.hint]);
  if (found.read) output.append(ours(`<span class="soft">${say("read")}</span> ${found.read}`));
};

at("deriving").onsubmit = (event) => { event.preventDefault(); if (ready) derive(numbers()); };

async function derive(values) {
  const table = at("table").value, output = at("derivation");
  at("moving").hidden = true;
  derived = null;
  if (table.length > LARGEST) return lines(output, [say("long")]);
  const found = await ask("derive", table, at("quantity").value, at("strategy").value, at("language").value);
  if (found.error) return lines(output, found.error.split("\n"));
  output.innerHTML = found.html; // as above
  derived = found;
  symbols = found.symbols;
  at("sliders").replaceChildren(...symbols.map((one) => slider(one, values?.[one.name])));
  at("moving").hidden = !symbols.length;
  if (symbols.length) await move(symbols[0].name);
}

const numbers = () => Object.fromEntries(symbols.map((one) => [one.name, at("value-" + one.name).value]));
const worth = (text) => text.split("/").map(Number).reduce((top, below) => top / below);

// A slider goes over doublings; the field beside it takes any number.
function slider(symbol, value) {
  const row = Object.assign(document.createElement("div"), { className: "slider" });
  const label = Object.assign(document.createElement("label"), { htmlFor: "slide-" + symbol.name });
  label.textContent = symbol.said + (symbol.means ? `: ${symbol.means}` : "") + (symbol.unit ? ` (${symbol.unit})` : "");
  const range = Object.assign(document.createElement("input"), { type: "range", id: "slide-" + symbol.name, min: 0, max: symbol.places.length - 1 });
  const field = Object.assign(document.createElement("input"), { id: "value-" + symbol.name, inputMode: "decimal", value: value ?? symbol.value });
  field.setAttribute("aria-label", `${symbol.said}: ${say("number")}`);
  const follow = () => {
    const near = symbol.places.map((place) => Math.abs(Math.log(worth(place) / worth(field.value))));
    range.value = near.indexOf(Math.min(...near));
    range.setAttribute("aria-valuetext", `${symbol.said} = ${field.value}`);
  };
  range.oninput = () => { field.value = symbol.places[range.value]; follow(); move(symbol.name); };
  field.onchange = () => { follow(); move(symbol.name); };
  field.onkeydown = (event) => { if (event.key === "Enter") field.onchange(); };
  follow();
  row.append(label, range, field);
  return row;
}

let moves = 0;
async function move(along) {
  const mine = ++moves, symbol = symbols.find((one) => one.name === along), values = numbers();
  const found = await ask("at", values, along, symbol.places, at("language").value);
  if (mine !== moves) return; // a later move is on its way
  if (found.error) { plot(at("plot"), [], null, ""); at("caption").textContent = ""; return lines(at("number"), found.error.split("\n")); }
  if (found.why) lines(at("number"), found.why.split("\n"));
  else at("number").replaceChildren(ours(found.formula), ours(found.number));
  const text = say("over")(at("quantity").selectedOptions[0].textContent, symbol.said, found.points.map((one) => `${one.x}: ${one.said}`).join(", "));
  plot(at("plot"), found.points, found.number ? { x: worth(values[along]), y: found.y, said: found.said } : null, text);
  at("caption").textContent = found.points.length ? say("over")(at("quantity").selectedOptions[0].textContent, symbol.said, `${found.points[0].said} … ${found.points.at(-1).said}`) : "";
}

// What was typed, in the link itself: nothing is kept anywhere else.
let kept = null;
function restore() {
  if (location.hash.length < 2) return true;
  try {
    const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    if (typeof found !== "object" || found === null) return false;
    for (const id of FIELDS) if (typeof found[id] === "string" && found[id].length <= LARGEST && id !== "question") {
      if (at(id).options && ![...at(id).options].some((one) => one.value === found[id])) return false;
      at(id).value = found[id];
    }
    const values = found.values && Object.fromEntries(Object.entries(found.values).map(([name, value]) => [name, String(value).slice(0, 40)]));
    kept = { question: typeof found.question === "string" ? found.question : "", values };
    return true;
  } catch { return false; }
}

at("share").onclick = async () => {
  const now = { ...Object.fromEntries(FIELDS.map((id) => [id, at(id).value])), ...(derived ? { values: numbers() } : {}) };
  const hash = encodeURIComponent(JSON.stringify(now));
  const told = (word) => { at("shared").textContent = say(word); };
  if (hash.length > LONGEST_LINK) return told("tooLong");
  history.replaceState(null, "", "#" + hash);
  try { await navigator.clipboard.writeText(location.href); told("copied"); } catch { told("bar"); }
};

const spoken = (navigator.languages ?? []).map((one) => one.slice(0, 2)).find((one) => one in WORDS);
at("language").value = spoken ?? "en";
const whole = restore();
speak();
if (!whole) lines(at("derivation"), [say("damaged")]);
if (typeof WebAssembly !== "object" || typeof Worker !== "function" || typeof DecompressionStream !== "function") state("old");
else { start(); state("loading"); }
