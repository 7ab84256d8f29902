"""How a rank runs a strategy: by a wrapper of PyTorch, by DTensor, in stages, with a cache."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from itertools import combinations
from typing import Any

from symcomm.verify.counters import Counter, local, saved_storages, storage

# Modules of PyTorch that it takes long to import, by the parts of a method's name.
MODULES: Mapping[str, tuple[str, ...]] = {
    "single": ("torch.utils.flop_counter",), "cached": ("torch.utils.flop_counter",),
    "ddp": ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.optim"),
    "zero1": ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.optim"),
    "fsdp2": ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.fsdp"),
    "replicate": ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.fsdp"),
    "dtensor": ("torch._dynamo", "torch.distributed.tensor.parallel"),
    "pipelining": ("torch._dynamo", "torch.distributed.tensor.parallel", "torch.distributed.pipelining"),
}  # fmt: skip


def modules(method: str) -> list[str]:
    """The modules of PyTorch that the ranks of a method need, and that are imported once for all of them."""
    return [name for part in method.split("+") for name in MODULES.get(part, ())]


def load_module(path: str) -> Any:
    """The written module as a Python module."""
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class OneProcess:
    """One rank's run of a method: ``prepare`` wraps the network, ``step`` does a training step.

    Each rank has its part of the batch, where that is cut outside of DTensor.
    """

    def __init__(self, spec: dict[str, Any], rank: int) -> None:
        import torch

        self.spec, self.rank, self.ranks = spec, rank, spec["ranks"]
        self.module = load_module(spec["source"])
        torch.manual_seed(spec["seed"])
        self.network = self.module.model(**spec["sizes"])
        self.inputs = self.module.example(**spec["sizes"])
        self.trained = [t.is_floating_point() and n not in spec["fixed"] for n, t in enumerate(self.inputs)]
        self.mesh: Any = None
        self.groups: dict[tuple[int, ...], str] = {}
        if self.ranks > 1:
            from torch.distributed.device_mesh import init_device_mesh

            names, sizes = zip(*spec["mesh"], strict=True)
            self.mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
            every = torch.arange(self.ranks).view(sizes)
            at = self.mesh.get_coordinate()
            for count in range(1, len(names) + 1):
                for some in combinations(range(len(names)), count):
                    mine = every[tuple(slice(None) if n in some else at[n] for n in range(len(names)))]
                    self.groups.setdefault(tuple(mine.flatten().tolist()), "+".join(names[n] for n in some))
        self.counter = Counter(self.groups)
        self.optimizer: Any = None
        self.constants: list[Any] = []  # what never changes: bias and masks of attention, parts of tables

        def attend(_: Any, *tensors: Any, **options: Any) -> Any:
            self.constants.extend(options[name] for name in ("attn_mask",) if name in options)
            return self.attention(*tensors, **options)

        self.placing(read=lambda _, op, name, tensor: tensor, rest=lambda _, name, tensor: tensor, attend=attend)

    def attention(self, *tensors: Any, **options: Any) -> Any:
        """Attention in one kernel."""
        import torch

        return torch.nn.functional.scaled_dot_product_attention(*tensors, **options)

    def placing(self, **calls: Callable[..., Any]) -> None:
        """The hooks that a written module calls for each operand, each result and each attention in one kernel."""
        import torch

        for name in dir(self.module):
            made: Any = getattr(self.module, name)
            if isinstance(made, type) and issubclass(made, torch.nn.Module):
                for call, does in calls.items():  # a written class has no such methods of its own
                    setattr(made, call, does)

    def own(self, tensor: Any, dim: int | None) -> Any:
        """This rank's part of a tensor whose axis ``dim`` is the batch."""
        for name in self.spec["batch_meshes"] if dim is not None else ():
            tensor = tensor.chunk(self.mesh[name].size(), dim)[self.mesh[name].get_local_rank()]
        return tensor

    def inputs_in(self) -> list[Any]:
        """This rank's part of the inputs, where the run has them; a view would keep the whole batch alive."""
        parts = map(self.own, self.inputs, self.spec["batch"]["inputs"])
        placed = zip(map(self.put, parts, self.spec["inputs"]), self.trained, strict=True)
        return [t.detach().clone().requires_grad_(on) for t, on in placed]

    def gradients_out(self) -> list[Any]:
        """The gradients of this rank's part of the results; of a loss, a mean over the ranks, its share."""
        import torch

        torch.manual_seed(self.spec["seed"] + 1)
        shares = math.prod(self.mesh[name].size() for name in self.spec["batch_meshes"])
        every = zip(map(torch.randn, self.spec["results"]), self.spec["batch"]["results"], strict=True)
        return [self.own(g, dim) if dim is not None else g / shares for g, dim in every]

    def put(self, tensor: Any, name: str) -> Any:
        """A tensor where the run has it between the ops."""
        return tensor

    def prepare(self) -> None:
        """Takes this rank's part of the inputs; makes units of the layers, where their weights are looked after."""
        self.given, self.out = self.inputs_in(), self.gradients_out()
        if self.spec["units"]:
            self.make_units(self.network)

    def make_units(self, network: Any) -> None:
        """Units of each layer and of the rest: ``fully_shard`` (hybrid over two axes of the mesh), or ``replicate``."""
        from torch.nn import ModuleList

        over, sharded = self.spec["shard_meshes"], self.spec["units"] == "fsdp2"
        if sharded:
            from torch.distributed.fsdp import fully_shard as unit
        else:
            from torch.distributed._composable.replicate_with_fsdp import replicate as unit  # as pipelining imports it
        mesh = self.mesh[over[0]] if len(over) == 1 else self.mesh[tuple(over)]
        stacks = [child for child in network.modules() if isinstance(child, ModuleList)]
        for one in (*(layer for stack in stacks for layer in stack), network):
            again = {"reshard_after_forward": self.spec["reshard"] and one is not network} if sharded else {}
            unit(one, mesh=mesh, **again)
        self.gradient_scale = float(mesh.size())  # gradients are the mean of so many ranks

    def whole(self, parameter: Any) -> Any:
        return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter

    def forward(self) -> Any:
        found = self.network(*self.given)
        return found if isinstance(found, tuple) else (found,)

    def backward(self, results: Any) -> None:
        import torch

        torch.autograd.backward(list(results), self.out)

    def arriving(self, like: list[Any]) -> list[Any]:
        """The gradients of results of some shapes and placements, made anew."""
        return [g.clone() for g in self.out]

    def clear(self) -> None:
        for p in [*self.network.parameters(), *self.given]:
            p.grad = None
        self.constants[:] = [self.given[n] for n in self.spec["fixed"] if self.given[n].is_floating_point()]

    def unsaved(self) -> list[Any]:
        """The tensors that are there all the time: autograd does not keep them."""
        return [*self.network.parameters(), *self.network.buffers(), *self.constants]

    def step(self) -> int | None:
        """Does a training step; gives the bytes that autograd kept for its backward pass."""
        counter = self.counter
        self.clear()
        counter.reset()
        counter.on = True
        with saved_storages(self.unsaved) as saved:
            results = self.forward()
        counter.phase = "backward"
        self.backward(results)
        del results
        if self.optimizer is not None:
            counter.phase = "update"
            self.optimizer.step()
        counter.on = False
        return sum(saved.values())

    gradient_scale = 1.0

    def gradients(self) -> dict[str, Any]:
        """The whole gradients by the names of parameters."""
        found = {n: self.whole(p.grad) for n, p in self.network.named_parameters() if p.grad is not None}
        return {n.replace("module.", ""): g * self.gradient_scale for n, g in found.items()}


class DataParallel(OneProcess):
    """DistributedDataParallel; ``zero1`` shards the states of the optimizer by ZeroRedundancyOptimizer."""

    def prepare(self) -> None:
        """Wraps the network, and makes the optimizer."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        super().prepare()
        self.network = DistributedDataParallel(self.network)
        self.gradient_scale = float(self.ranks)
        if self.spec["method"] == "zero1":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            self.optimizer = ZeroRedundancyOptimizer(
                self.network.parameters(), optimizer_class=torch.optim.SGD, lr=0.0, momentum=0.9
            )


class PlacedRun(OneProcess):
    """DTensor: weights and inputs are placed, each op finds its operands where the plan reads them.

    A copy that is brought somewhere serves all who need it there in one step, as a gradient is reduced once; each
    layer of a stack brings its own.
    """

    def __init__(self, spec: dict[str, Any], rank: int) -> None:
        super().__init__(spec, rank)
        self.copies: dict[Any, Any] = {}

    def prepare(self) -> None:
        """Places the weights, then the inputs."""
        self.place()
        super().prepare()

    def attention(self, *tensors: Any, **options: Any) -> Any:
        """Attention on a rank's own heads, of which it has the whole sequence."""
        from torch.distributed.tensor import DTensor

        def held(tensor: Any) -> Any:
            """A rank's part by itself: what was exchanged through the whole tensor would keep that for backward."""
            mine = local(tensor)
            return mine.clone() if storage(mine).nbytes() > mine.nbytes else mine

        made = super().attention(*map(held, tensors), **{name: local(value) for name, value in options.items()})
        query = tensors[0]
        placed = isinstance(query, DTensor)
        return DTensor.from_local(made, query.device_mesh, query.placements, run_check=False) if placed else made

    def place(self) -> None:
        """Places the weights (those that are one stay one), and has each op find its operands where it reads them."""
        import torch

        _remembering()
        spec = self.spec
        self.mesh_placed = (
            self.mesh[tuple(spec["placed_meshes"])] if len(spec["placed_meshes"]) < self.mesh.ndim else self.mesh
        )
        if hasattr(self.module, "route"):
            self.module.route = _locally(self.module.route)
        stacks = [one for one in self.network.modules() if isinstance(one, torch.nn.ModuleList)]
        self.layers = {id(layer): layer for stack in stacks for layer in stack}
        # The gradient of an operand that passes may stay a partial sum; any other is finished where it is read.
        self.placing(
            read=lambda module, op, name, tensor: self.brought(
                name, tensor, spec["reads"].get(op, {}).get(name), name in spec["passing"], module
            ),
            rest=lambda module, name, tensor: self.brought(
                name, tensor, spec["rests"].get(name) if hasattr(tensor, "placements") else None, True, module
            ),
        )
        first: dict[str, Any] = {}
        for path, tensor in spec["parameters"].items():
            for owner, attribute in _owners(self.network, path):
                made = torch.nn.Parameter(self.distributed(getattr(owner, attribute).data, tensor))
                setattr(owner, attribute, first.setdefault(tensor, made) if tensor in spec["tied"] else made)

    def resting(self, name: str) -> list[Any]:
        """Where a tensor is between the ops that make and read it."""
        from torch.distributed.tensor import Replicate, Shard

        said = self.spec["rests"].get(name) or [None] * self.mesh_placed.ndim
        return [Replicate() if one is None else Shard(one) for one in said]

    def distributed(self, tensor: Any, name: str) -> Any:
        """A tensor as DTensor has it there."""
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor, self.mesh_placed, self.resting(name))

    def put(self, tensor: Any, name: str) -> Any:
        """The same of an input."""
        return self.distributed(tensor, name)

    def brought(self, name: str, tensor: Any, said: list[Any] | None, stays: bool, module: Any) -> Any:
        """A tensor brought where a module has it; one that is there already is left alone where it ``stays``."""
        import torch
        from torch.distributed.tensor import DTensor, Replicate, Shard

        if said is None:
            return tensor
        table = not isinstance(tensor, DTensor)
        if table:
            whole = [Replicate()] * self.mesh_placed.ndim
            tensor = DTensor.from_local(tensor, self.mesh_placed, whole, run_check=False)
        wanted = tuple(p if one == "any" else Replicate() if one is None else Shard(one)
                       for one, p in zip(said, tensor.placements, strict=True))  # fmt: skip
        if stays and str(wanted) == str(tensor.placements):
            return tensor
        key = (id(self.layers.get(id(module))), id(tensor), wanted)
        if key not in self.copies:

            def begins(gradients: Any) -> Any:
                self.counter.label = name
                # What is exchanged lies in order behind it, but DTensor keeps its strides; a sum has the same ones.
                parts = (g is not None and not any(p.is_partial() for p in g.placements) for g in gradients)
                return tuple(g.contiguous() if part else g for g, part in zip(gradients, parts, strict=True))

            self.counter.label = name
            made = tensor.redistribute(placements=wanted)
            self.counter.label = ""
            if made.grad_fn is not None:
                made.grad_fn.register_prehook(begins)
                made.grad_fn.register_hook(lambda a, b: setattr(self.counter, "label", ""))
            mine, pairs = local(made), zip(tensor.placements, wanted, strict=True)
            if not table and any(a.is_shard() and b.is_shard() and a != b for a, b in pairs) and (
                    not made.is_contiguous() or storage(mine).nbytes() > mine.nbytes):  # fmt: skip
                # What is exchanged lies in order, but DTensor keeps its strides; a part would keep all of it.
                made = made.clone(memory_format=torch.contiguous_format)
            self.copies[key] = (tensor, made)
            if table:
                self.constants.append(made)  # parts of masks and rotations
        return self.copies[key][1]

    def forward(self) -> Any:
        """The results, for which nothing is brought twice."""
        self.copies.clear()
        return super().forward()

    def arriving(self, like: list[Any]) -> list[Any]:
        """The gradients of results, placed as these are."""
        from torch.distributed.tensor import Replicate, distribute_tensor

        out = []
        on = self.counter.on
        self.counter.on = False
        for g, (_, places) in zip(self.gradients_out(), like, strict=True):
            placements = [Replicate() if p.is_partial() else p for p in places]
            out.append(distribute_tensor(g, self.mesh_placed, placements))
        self.counter.on = on
        self.copies.clear()
        return out

    def backward(self, results: Any) -> None:
        """From gradients that are placed as the results are."""
        import torch

        torch.autograd.backward(list(results), self.arriving([(r.shape, r.placements) for r in results]))


def _remembering() -> None:
    """DTensor weighs the same steps from one placement to the next thousands of times: each planner remembers them."""
    from torch.distributed.tensor import _redistribute

    planner: Any = getattr(_redistribute, "DTensorRedistributePlanner", None)
    plain: Any = getattr(planner, "get_next_state", None)
    targets = ("strided_shard_placements_in_target", "partial_reduce_ops_in_target")

    def get_next_state(self: Any, *state: Any) -> Any:
        key = (*state, *(frozenset(getattr(self, name)) for name in targets))
        seen = vars(self).setdefault("seen", {})
        if key not in seen:
            seen[key] = plain(self, *state)
        return seen[key]

    if plain is not None and all(name in plain.__code__.co_names for name in targets):  # private to PyTorch
        planner.get_next_state = get_next_state


def _locally(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the parts that a rank holds: each rank routes its own sequences."""
    from torch.distributed.tensor import DTensor

    def made(gates: Any, *arguments: Any) -> Any:
        part = function(gates.to_local(), *arguments)
        return DTensor.from_local(part, gates.device_mesh, gates.placements, run_check=False)

    return made


def _owners(network: Any, path: str) -> list[tuple[Any, str]]:
    """The modules behind ``layers.*.W``, each with the name of the attribute."""
    *names, attribute = path.split(".")
    found = [network]
    for name in names:
        found = [child for one in found for child in ([*one] if name == "*" else [getattr(one, name)])]
    return [(one, attribute) for one in found]


def _chain(run: Staged) -> Any:
    """The parts of a network one after the other, as a class of modules that hand on one tensor."""
    import torch

    class Consecutive(torch.nn.Module):  # type: ignore[misc]  # torch has no type hints here
        """Some of the parts; each finds its further inputs by name."""

        def __init__(self, parts: list[tuple[Any, dict[str, Any]]]) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(part for part, _ in parts)
            self.said = [said for _, said in parts]

        def forward(self, flow: Any, **given: Any) -> Any:
            run.counter.phase = "forward"
            flow = run.enter(self.said[0]["takes"], flow)
            for part, said in zip(self.parts, self.said, strict=True):
                flow = part(*(flow if n is None else run.enter(n, given[n]) for n in said["arguments"]))
            run.counter.phase = "step"
            flow = local(flow)
            return flow.clone() if flow._is_view() else flow  # a split backward pass detaches it in place

    return Consecutive


class Staged(PlacedRun):
    """``torch.distributed.pipelining``: consecutive parts are stages; DTensor places what is in them, where told."""

    def prepare(self) -> None:
        """Makes the stages of this rank, each trained in its way, and the schedule that runs them."""
        import torch
        from torch.distributed import pipelining
        from torch.distributed.pipelining.microbatch import TensorChunkSpec, _Replicate

        spec = self.spec
        self.placed = "placed_meshes" in spec
        if self.placed:
            self.place()
        every: list[tuple[Any, dict[str, Any]]] = []
        for said in spec["chain"]:
            child = getattr(self.network, said["attribute"])
            every += [(one, said) for one in (child if isinstance(child, torch.nn.ModuleList) else [child])]
        at, counts, homes = self.mesh["pipe"].get_local_rank(), spec["parts"], spec["homes"]
        starts = [sum(counts[:n]) for n in range(len(counts))]
        mine = [s for s, home in enumerate(homes) if home == at]
        make = _chain(self)
        self.parts = torch.nn.ModuleList(make(every[starts[s] : starts[s] + counts[s]]) for s in mine)
        self.plain = self.network
        names: dict[int, list[str]] = {}
        for name, weight in self.plain.named_parameters(remove_duplicate=False):
            names.setdefault(id(weight), []).append(name)
        self.several = [said for said in names.values() if len(said) > 1]
        for part in self.parts if spec["units"] else ():
            self.make_units(part)
        self.network = self.parts
        group = self.mesh.get_group("pipe")
        stages = [
            pipelining.PipelineStage(w, s, len(homes), torch.device("cpu"), group=group)
            for w, s in zip(self.parts, mine, strict=True)
        ]
        self.named = dict(zip(spec["names"], spec["inputs"], strict=True))
        self.given, (out,), count = self.inputs_in(), self.gradients_out(), spec["microbatches"]
        # A loss is the mean of those of the microbatches.
        self.out = self.put(out, spec["last"]) if out.ndim else out.expand(count) / count
        record = getattr(pipelining, spec["schedule"])
        # Inputs without a batch axis go whole to every microbatch.
        cuts = dict(zip(spec["names"], spec["batch"]["inputs"], strict=True))
        pieces = {name: _Replicate if dim is None else TensorChunkSpec(dim) for name, dim in [*cuts.items()][1:]}
        options = {"loss_fn": lambda out, g: (out * g).sum(), "scale_grads": False, "kwargs_chunk_spec": pieces}
        self.schedule = record(stages if spec["several"] else stages[0], count, **options)
        self.first, self.last = 0 in mine, len(homes) - 1 in mine
        self.share(homes[0], homes[-1])
        for stage in stages:
            self.told(stage, "get_fwd_send_ops", "forward")
            self.told(stage, "get_bwd_send_ops", "backward")

    def share(self, first: int, last: int) -> None:
        """The gradient of a weight that the first and the last stage hold is a sum of theirs."""
        import torch.distributed as dist

        own = {id(p) for p in self.parts.parameters()}
        named = dict(self.plain.named_parameters(remove_duplicate=False)) if first != last else {}
        some = {id(named[name]): named[name] for names in self.several for name in names if name in named}
        self.shared = [weight for i, weight in some.items() if i in own]
        if some:
            pipes = self.mesh.mesh.reshape(self.mesh["pipe"].size(), -1)  # the outermost axis
            for pair in pipes[[first, last]].T.tolist():
                group = dist.new_group(sorted(pair))
                if self.rank in pair:
                    self.groups[tuple(sorted(pair))], self.both = "pipe", group

    def enter(self, name: str, value: Any) -> Any:
        """The input of a stage, as its parts take it."""
        if not self.placed:
            return value
        from torch.distributed.tensor import DTensor

        resting = self.resting(self.named.get(name, name))
        return DTensor.from_local(value, self.mesh_placed, resting, run_check=False)

    def told(self, stage: Any, name: str, phase: str) -> None:
        """Makes known in which phase a message is sent: the schedule sends it later, with others."""
        make, phases = getattr(stage, name), self.counter.phases

        def made(*arguments: Any) -> Any:
            operations = make(*arguments)
            for operation in operations:
                phases[operation.tensor.data_ptr()] = phase
            return operations

        setattr(stage, name, made)

    def put(self, tensor: Any, name: str) -> Any:
        """This rank's part of a tensor: stages hand on no DTensor."""
        said = self.spec["rests"].get(name, []) if self.placed else []
        for mesh, dim in zip(self.spec["placed_meshes"] if said else (), said, strict=True):
            if isinstance(dim, int):
                tensor = tensor.chunk(self.mesh[mesh].size(), dim)[self.mesh[mesh].get_local_rank()]
        return tensor

    def step(self) -> None:
        """A step of the schedule; stages keep what they save of several microbatches."""
        import torch.distributed as dist

        self.clear()
        self.counter.reset()
        self.counter.on = True
        self.counter.phase = "step"
        self.copies.clear()
        flows = self.given[:1] if self.first else []
        target = {"target": self.out} if self.last else {}
        others = dict(zip(self.spec["names"][1:], self.given[1:], strict=True))
        self.schedule.step(*flows, **target, **others, return_outputs=False)
        for weight in self.shared:
            self.counter.phase = "backward"
            dist.all_reduce(local(weight.grad), group=self.both)
        self.counter.on = False

    def gradients(self) -> dict[str, Any]:
        first = {name: names[0] for names in self.several for name in names}  # units make two of one weight
        owned = {id(p): first.get(n, n) for n, p in self.plain.named_parameters()}
        found = {owned[id(p)]: p.grad for p in self.parts.parameters() if p.grad is not None}
        return {n: self.whole(g) * self.gradient_scale for n, g in found.items()}


class Cached(OneProcess):
    """A step behind a prompt: the module reads the prompt with an empty cache, hands the cache on, and takes the step.

    The whole text in one pass, with no cache either, has the rows that the step must give.
    """

    def prepare(self) -> None:
        spec, sizes, sites = self.spec, self.spec["sizes"], self.spec["positions"]
        past, new = sizes.get(spec["past"], 0), sizes[spec["new"]]

        def sized(positions: int) -> dict[str, int]:
            return {**sizes, spec["new"]: positions, **({spec["past"]: 0} if spec["past"] else {})}

        given = self.module.example(**sized(past + new))

        def part(tensor: Any, axes: list[tuple[int, bool]], start: int, positions: int) -> Any:
            for axis, are_new in axes:  # a number for each query and key has the keys before, too
                at = start if are_new else 0
                tensor = tensor.narrow(axis, at, start + positions - at)
            return tensor

        def ran(positions: int) -> tuple[list[Any], Any]:
            network = self.module.model(**sized(positions))
            network.load_state_dict(self.network.state_dict())
            for (mine, name, _, rows), (one, *_) in zip(self.kept(), self.kept(network), strict=True):
                if not rows:  # of a request: there before the first step
                    setattr(one, name, getattr(mine, name))
            found = network(*(part(t, at, 0, positions) for t, at in zip(given, sites, strict=True)))
            return self.kept(network), found if isinstance(found, tuple) else (found,)

        _, self.wanted = ran(past + new)
        for (mine, name, _, rows), (one, *_) in zip(self.kept(), ran(past)[0] if past else (), strict=bool(past)):
            for axis, _ in rows:
                left, many = getattr(one, name), getattr(mine, name).shape[axis]
                setattr(mine, name, left.narrow(axis, left.shape[axis] - many, many).clone())
        self.given = [part(t, at, past, new) for t, at in zip(given, sites, strict=True)]

    def kept(self, network: Any = None) -> list[tuple[Any, str, str, list[tuple[int, bool]]]]:
        """The tensors of the cache: whose they are, by which attribute, their names in the table, their positions."""
        return [(one, name, *said) for path, said in self.spec["kept"].items()
                for one, name in _owners(network or self.network, path)]  # fmt: skip

    def error(self, results: Any) -> float:
        """The largest relative difference from the rows of the whole text in one pass."""
        found = 0.0
        for mine, whole in zip(map(self.whole, results), self.wanted, strict=True):
            for n, size in enumerate(mine.shape):
                whole = whole.narrow(n, whole.shape[n] - size, size)
            found = max(found, ((mine - whole).abs().max() / whole.abs().max()).item())
        return found


class PlacedCached(PlacedRun, Cached):
    """A step whose weights, inputs and cache DTensor places."""

    def prepare(self) -> None:
        """Runs the prompt in one process, and places what it leaves."""
        Cached.prepare(self)
        self.place()
        for one, name, tensor, _ in self.kept():
            setattr(one, name, self.put(getattr(one, name), tensor))
        self.given = [*map(self.put, self.given, self.spec["inputs"])]


RUNS: Mapping[str, type[OneProcess]] = {
    "cached": Cached, "cached+dtensor": PlacedCached, "ddp": DataParallel, "zero1": DataParallel,
}  # fmt: skip


def run_of(method: str) -> type[OneProcess]:
    """The class that runs a method: stages may be trained as any of the others are."""
    if method.startswith("pipelining"):
        return Staged
    return RUNS.get(method) or (PlacedRun if "dtensor" in method else OneProcess)


def losses(spec: dict[str, Any]) -> Any:
    """Losses over classes that are cut, in either pass."""
    if not spec.get("loss_parallel"):
        return nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel

    return loss_parallel()
