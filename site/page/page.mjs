// The page: what is typed goes to a worker that runs symcomm; one that takes longer than LIMIT is ended and started again.
const LIMIT = 20000, LARGEST = 200000;
const at = (id) => document.getElementById(id);
const fields = ["question", "answer", "table", "quantity", "strategy"];
let worker, waiting = new Map(), count = 0;

function start() {
  worker = new Worker("worker.mjs", { type: "module" });
  worker.onerror = () => say("This browser cannot run the page: it needs module workers and WebAssembly.");
  worker.onmessage = ({ data }) => {
    if (data.failed) return say("symcomm could not be loaded: " + data.failed);
    if (data.questions) return ready(data.questions);
    const one = waiting.get(data.id);
    waiting.delete(data.id);
    clearTimeout(one.timer);
    one.done(data.result);
  };
}

function say(text) { at("state").textContent = text; }

function ready(questions) {
  if (!at("question").length) {
    at("question").replaceChildren(...questions.map(([id, label]) => new Option(label, id)));
    restore();
  }
  for (const button of document.querySelectorAll("button")) button.disabled = false;
  say("Ready. Nothing you type leaves this page.");
}

function ask(call, ...args) {
  return new Promise((done) => {
    const id = ++count;
    const timer = setTimeout(() => {
      worker.terminate();
      for (const button of document.querySelectorAll("button")) button.disabled = true;
      for (const one of waiting.values()) { clearTimeout(one.timer); one.done({ error: "This took longer than 20 s and was given up." }); }
      waiting = new Map();
      say("Starting again.");
      start();
    }, LIMIT);
    waiting.set(id, { done, timer });
    worker.postMessage({ id, call, args });
  });
}

function restore() {
  if (!location.hash) return;
  try {
    const state = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    for (const id of fields) if (typeof state[id] === "string" && state[id].length <= LARGEST) at(id).value = state[id];
  } catch {
    at("derivation").textContent = "The link is damaged: the page starts with its example.";
  }
}

function lines(output, texts) {
  output.replaceChildren(...texts.filter(Boolean).map((text) => Object.assign(document.createElement("p"), { textContent: text })));
}

at("checking").onsubmit = async (event) => {
  event.preventDefault();
  const found = await ask("check", at("question").value, at("answer").value);
  at("verdict").dataset.verdict = found.verdict ?? "refused";
  lines(at("verdict"), found.error ? [found.error] : [found.verdict.replaceAll("_", " "), ...found.says, found.hint]);
};

at("deriving").onsubmit = async (event) => {
  event.preventDefault();
  const table = at("table").value;
  if (table.length > LARGEST) return lines(at("derivation"), ["The table has more than 200,000 characters: paste one layer."]);
  const found = await ask("derive", table, at("quantity").value, at("strategy").value);
  if (found.error) lines(at("derivation"), found.error.split("\n"));
  else at("derivation").innerHTML = found.html; // made by symcomm, which escapes what was typed
};

at("share").onclick = async () => {
  const state = Object.fromEntries(fields.map((id) => [id, at(id).value]));
  location.hash = encodeURIComponent(JSON.stringify(state));
  try { await navigator.clipboard.writeText(location.href); say("The link is copied."); } catch { say("The link is in the address bar."); }
};

start();
