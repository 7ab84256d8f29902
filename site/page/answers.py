"""What the page asks of symcomm: texts come in, JSON goes out, and no verdict tells the answer."""

import json

import symcomm as sc

problem = sc.read_problem("questions.md")
asks = dict(zip(problem.ids, problem.asks, strict=True))
keys: dict[str, object] = {}


def questions() -> str:
    """The ids and names of the questions."""
    return json.dumps([[name, f"{name}  {ask.label or ask.quantity.replace('_', ' ')}"] for name, ask in asks.items()])


def check(name: str, answer: str) -> str:
    """The verdict on an answer, with hints and without the answer itself."""
    try:
        key = keys.setdefault(name, None) or sc.key_of(problem, asks[name])
        keys[name] = key
        verdict = sc.check(answer, key)
    except sc.SymcommError as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"verdict": verdict.verdict, "says": list(verdict.says), "hint": verdict.hint})


def derive(table: str, quantity: str, strategy: str) -> str:
    """The derivation of a quantity as HTML."""
    try:
        model = sc.load(json.loads(table) if table.lstrip().startswith("{") else table)
        needed = [strategy] if strategy.strip() and quantity in ("communication", "state_memory") else []
        return json.dumps({"html": getattr(model, quantity)(*needed).html()})
    except (sc.SymcommError, json.JSONDecodeError) as error:
        return json.dumps({"error": str(error)})
