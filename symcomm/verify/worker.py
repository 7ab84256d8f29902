"""The ranks of runs in PyTorch: ``python -m symcomm.verify.worker FOLDER``, which forks them for each run.

A rank reads a specification (JSON), takes part in a few training steps, counts the last one, and writes what it counted
(JSON). It is a process of its own, so that nothing of a run is left when it ends; PyTorch is imported before.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

PROBE = 840 * 117  # numbers of a tensor that goes through sockets: 2 to 8 ranks have equally many each
KINK = 1e-6  # of numbers around 1: more than their sums in fp32 differ by
STEPS = 3  # the first ones have set-up traffic: shapes of messages, buckets that are rebuilt


class Counter:
    """The work, saved bytes and calls of a rank: ``calls`` are (kind, phase, group, elements, bytes, tensor)."""

    phases: dict[int, str]

    def __init__(self, groups: dict[tuple[int, ...], str]) -> None:
        self.groups, self.phases = groups, {}
        self.reset()

    def reset(self) -> None:
        self.phase, self.label, self.on = "forward", "", False
        self.calls: list[dict[str, Any]] = []
        self.flops: dict[str, int] = {}

    def call(self, kind: str, tensor: Any, elements: int, ranks: tuple[int, ...], unit: bool) -> None:
        if self.on and elements:
            # Between the passes of a stage messages are sent, and units of weights are gathered before they are read.
            sent = self.phases.get(tensor.data_ptr(), "backward") if kind == "send" else "backward"
            sent = "forward" if unit and kind == "all-gather" else sent
            phase = sent if self.phase == "step" else self.phase
            self.calls.append({
                "kind": kind, "phase": phase, "group": self.groups.get(ranks, f"ranks {ranks}"), "ranks": len(ranks),
                "elements": elements, "bytes": elements * tensor.element_size(), "tensor": self.label,
            })  # fmt: skip

    def mode(self) -> Any:
        """A dispatch mode that sees each op on tensors as the rank holds them, and each collective of c10d."""
        import torch
        import torch.distributed as dist
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves
        from torch.utils.flop_counter import flop_registry

        outer = self
        placed: tuple[type, ...] = ()
        if dist.is_available():
            from torch.distributed.tensor import DTensor

            placed = (DTensor,)

        # PyTorch counts nothing for its kernel of attention on the CPU: two products forward, and five backward, as it
        # makes the scores again.
        attention: dict[Any, Callable[..., int]] = {
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, *_, **__: 4 * _pairs(q, k),
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward:
                lambda g, q, k, *_, **__: 10 * _pairs(q, k),
        }  # fmt: skip

        def group_of(arguments: Any) -> tuple[int, ...]:
            for one in tree_leaves(arguments):
                if isinstance(one, str) and one in dist.distributed_c10d._world.pg_names.values():
                    return tuple(dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(one)))
                if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
                    return tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(one)))
            return ()

        # name of an op -> kind, and the place of the full tensor among its tensors in and out
        kinds = {
            "_c10d_functional.all_reduce": ("all-reduce", 0),
            "_c10d_functional.all_reduce_": ("all-reduce", 0),
            "_c10d_functional.all_gather_into_tensor": ("all-gather", -1),
            "_c10d_functional.reduce_scatter_tensor": ("reduce-scatter", 0),
            "_c10d_functional.all_to_all_single": ("all-to-all", 0),
            "_c10d_functional.broadcast": ("broadcast", 0),
            "c10d.allreduce_": ("all-reduce", 0),
            "c10d._allgather_base_": ("all-gather", 0),
            "c10d._reduce_scatter_base_": ("reduce-scatter", 1),
            "c10d.alltoall_base_": ("all-to-all", 1),
            "c10d.broadcast_": ("broadcast", 0),
            "c10d.send": ("send", 0),
        }

        class CountingMode(TorchDispatchMode):  # type: ignore[misc]  # torch has no type hints here
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = kwargs or {}
                if any(issubclass(t, placed) for t in types):
                    return NotImplemented
                found = func(*args, **kwargs)
                packet = func._overloadpacket
                counts = flop_registry.get(packet) or attention.get(packet)
                if outer.on and counts is not None:
                    count = counts(*args, **kwargs, out_val=found)
                    outer.flops[outer.phase] = outer.flops.get(outer.phase, 0) + int(count)
                name = str(packet)
                if name in kinds:
                    kind, at = kinds[name]
                    tensors = [t for t in tree_leaves((args, kwargs, found)) if isinstance(t, torch.Tensor)]
                    elements, ranks = int(tensors[at].numel()), group_of((args, kwargs))
                    outer.call(kind, tensors[0], elements, ranks, name.startswith("c10d."))
                return found

        return CountingMode()


def _pairs(query: Any, key: Any) -> int:
    """The multiplications of one product over all queries and keys."""
    return int(query.numel() * key.shape[-2])


class SavedStorages:
    """The bytes of unique storages that autograd keeps, without weights and what never changes."""

    def __init__(self, run: OneProcess) -> None:
        self.run = run
        self.bytes: dict[int, int] = {}
        self.alive: list[Any] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        import torch

        with torch.autograd.graph.saved_tensors_hooks(self.pack, lambda tensor: tensor):
            yield

    def pack(self, tensor: Any) -> Any:
        storage = _storage(tensor)
        others = (*self.run.network.parameters(), *self.run.network.buffers(), *self.run.constants)
        if storage.data_ptr() not in {_storage(one).data_ptr() for one in others}:
            self.alive.append(storage)  # one that is freed would give its place to another one
            self.bytes[storage.data_ptr()] = storage.nbytes()
        return tensor


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _storage(tensor: Any) -> Any:
    held = getattr(tensor, "_local_tensor", tensor)
    return getattr(held, "elem", held).untyped_storage()  # what a collective that runs beside gives has it inside


def load_module(path: str) -> Any:
    """The written module as a Python module."""
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- tensors at their places ----------------------------------------------------------------------------


class Places:
    """Where the tensors of a run are to be: ``read`` brings an operand there, ``rest`` a result.

    A copy that is brought somewhere serves all who need it there in one step, as a gradient is reduced once.
    """

    def __init__(self, spec: dict[str, Any], mesh: Any, counter: Counter) -> None:
        self.reads, self.rests, self.mesh, self.counter = spec["reads"], spec["rests"], mesh, counter
        self.passing = frozenset(spec["passing"])
        self.copies: dict[Any, Any] = {}
        self.constants: list[Any] = []  # parts of masks and rotations

    def placements(self, said: list[Any]) -> tuple[Any, ...]:
        from torch.distributed.tensor import Replicate, Shard

        return tuple(Replicate() if one is None else Shard(one) for one in said)

    def read(self, op: str, name: str, tensor: Any) -> Any:
        said = self.reads.get(op, {}).get(name)
        if said is None:
            return tensor
        if name in self.passing and all(
            str(p) == str(q) for p, q in zip(tensor.placements, self.placed(said, tensor), strict=True)
        ):
            return tensor  # its gradient may stay a partial sum
        return self.moved(name, tensor, said)

    def rest(self, name: str, tensor: Any) -> Any:
        said = self.rests.get(name)
        if said is None or not hasattr(tensor, "placements"):
            return tensor
        if all(
            one == "any" or str(p) == str(q)
            for one, p, q in zip(said, tensor.placements, self.placed(said, tensor), strict=True)
        ):
            return tensor
        return self.moved(name, tensor, said)

    def placed(self, said: list[Any], tensor: Any) -> tuple[Any, ...]:
        wanted = self.placements([None if one == "any" else one for one in said])
        return tuple(p if one == "any" else q for one, p, q in zip(said, tensor.placements, wanted, strict=True))

    def moved(self, name: str, tensor: Any, said: list[Any]) -> Any:
        from torch.distributed.tensor import DTensor, Replicate

        table = not isinstance(tensor, DTensor)
        if table:
            tensor = DTensor.from_local(tensor, self.mesh, [Replicate()] * self.mesh.ndim, run_check=False)
        wanted = self.placed(said, tensor)
        key = (id(tensor), wanted)
        if key not in self.copies:
            self.counter.label = name
            made = tensor.redistribute(placements=wanted)
            self.counter.label = ""
            if made.grad_fn is not None:
                made.grad_fn.register_prehook(lambda grads: setattr(self.counter, "label", name))
                made.grad_fn.register_hook(lambda a, b: setattr(self.counter, "label", ""))
            self.copies[key] = (tensor, made)
            if table:
                self.constants.append(made)
        return self.copies[key][1]


# -- the ways to run ------------------------------------------------------------------------------------


class OneProcess:
    """One rank's run of a method: ``prepare`` wraps the network, ``step`` does a training step.

    ``modules`` are those of PyTorch that it takes long to import.
    """

    modules: tuple[str, ...] = ("torch.utils.flop_counter",)

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

    def part(self, tensor: Any, meshes: list[str], dim: int = 0) -> Any:
        """This rank's part of a batch."""
        for name in meshes:
            tensor = tensor.chunk(self.mesh[name].size(), dim)[self.mesh[name].get_local_rank()]
        return tensor

    def gradients_out(self, results: Any) -> list[Any]:
        import torch

        torch.manual_seed(self.spec["seed"] + 1)
        if "results" not in self.spec:
            return [torch.randn_like(r) for r in self.forward()]
        return [torch.randn(shape) for shape in self.spec["results"]]

    def prepare(self) -> None:
        """One process: nothing is wrapped."""
        self.given = [t.detach().requires_grad_(on) for t, on in zip(self.inputs, self.trained, strict=True)]
        self.out = self.gradients_out(None)

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

    def step(self, keeper: SavedStorages | None) -> None:
        counter = self.counter
        self.clear()
        counter.reset()
        counter.on = True
        counter.phase = "forward"
        if keeper is not None:
            with keeper.watching():
                results = self.forward()
        else:
            results = self.forward()
        counter.phase = "backward"
        self.backward(results)
        del results
        if self.optimizer is not None:
            counter.phase = "update"
            self.optimizer.step()
        counter.on = False

    gradient_scale = 1.0

    def gradients(self) -> dict[str, Any]:
        """The whole gradients by the names of parameters."""
        found = {n: self.whole(p.grad) for n, p in self.network.named_parameters() if p.grad is not None}
        return {n.replace("module.", ""): g * self.gradient_scale for n, g in found.items()}


class Batched(OneProcess):
    """Each rank has its part of the batch."""

    def prepare(self) -> None:
        axes, meshes = self.spec["batch"], self.spec["batch_meshes"]
        self.given = []
        for tensor, dim, on in zip(self.inputs, axes["inputs"], self.trained, strict=True):
            tensor = self.part(tensor, meshes, dim) if dim is not None else tensor
            self.given.append(tensor.detach().clone().requires_grad_(on))
        self.out = [
            self.part(g, meshes, dim) if dim is not None else g / self.ranks
            for g, dim in zip(self.gradients_out(None), axes["results"], strict=True)
        ]


class DataParallel(Batched):
    """DistributedDataParallel; ``zero1`` shards the states of the optimizer by ZeroRedundancyOptimizer."""

    modules = ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.optim")

    def prepare(self) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        super().prepare()
        self.plain = self.network
        self.network = DistributedDataParallel(self.network)
        self.gradient_scale = float(self.ranks)
        if self.spec["method"] == "zero1":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            self.optimizer = ZeroRedundancyOptimizer(
                self.network.parameters(), optimizer_class=torch.optim.SGD, lr=0.0, momentum=0.9
            )


class FullySharded(Batched):
    """``fully_shard`` on each layer, then on the whole; over two axes of the mesh it is hybrid sharding."""

    modules = ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.fsdp")

    def prepare(self) -> None:
        super().prepare()
        self.gradient_scale = _sharded(self)


def _sharded(run: OneProcess, network: Any = None) -> float:
    """Makes units of the layers and of the rest of a network; gives of how many ranks gradients are the mean."""
    import torch
    from torch.distributed.fsdp import fully_shard

    network = run.network if network is None else network
    over, options = run.spec["shard_meshes"], {"reshard_after_forward": run.spec["reshard"]}
    mesh = run.mesh[over[0]] if len(over) == 1 else run.mesh[tuple(over)]
    unit, last = fully_shard, {"reshard_after_forward": False}
    if "replicate" in run.spec["method"]:
        from torch.distributed._composable.replicate_with_fsdp import replicate  # as pipelining imports it

        unit, options, last = replicate, {}, {}
    for child in network.modules():
        if isinstance(child, torch.nn.ModuleList):
            for layer in child:
                unit(layer, mesh=mesh, **options)
    unit(network, mesh=mesh, **last)
    return float(mesh.size())


class PlacedRun(OneProcess):
    """DTensor: weights and inputs are placed, each op finds its operands where the plan reads them."""

    modules: tuple[str, ...] = ("torch._dynamo", "torch.distributed.tensor.parallel")

    def prepare(self) -> None:
        from torch.distributed.tensor import distribute_tensor

        self.place()
        self.given = []
        for tensor, name, on in zip(self.inputs, self.spec["inputs"], self.trained, strict=True):
            value = distribute_tensor(tensor, self.mesh_placed, self.resting(name))
            self.given.append(value.detach().requires_grad_(on))

    def attention(self, *tensors: Any, **options: Any) -> Any:
        """Attention on a rank's own heads, of which it has the whole sequence."""
        from torch.distributed.tensor import DTensor

        made = super().attention(*map(_local, tensors), **{name: _local(value) for name, value in options.items()})
        query = tensors[0]
        placed = isinstance(query, DTensor)
        return DTensor.from_local(made, query.device_mesh, query.placements, run_check=False) if placed else made

    def resting(self, name: str) -> tuple[Any, ...]:
        """Where a tensor is between the ops that make and read it."""
        return self.places.placements(self.spec["rests"].get(name) or [None] * self.mesh_placed.ndim)

    def place(self) -> None:
        """Places the weights, and has each op find its operands where the plan reads them."""
        import torch
        from torch.distributed.tensor import distribute_tensor

        _remembering()
        spec = self.spec
        mesh = self.mesh[tuple(spec["placed_meshes"])] if len(spec["placed_meshes"]) < self.mesh.ndim else self.mesh
        places = Places(spec, mesh, self.counter)
        self.places = places
        self.constants = places.constants
        if hasattr(self.module, "route"):
            self.module.route = _locally(self.module.route)
        self.placing(
            read=lambda _, op, name, tensor: places.read(op, name, tensor),
            rest=lambda _, name, tensor: places.rest(name, tensor),
        )
        for path, tensor in spec["parameters"].items():
            for owner, attribute in _owners(self.network, path):
                said = places.placements(spec["rests"][tensor])
                parameter = distribute_tensor(getattr(owner, attribute).data, mesh, said)
                setattr(owner, attribute, torch.nn.Parameter(parameter))
        self.tied()
        self.mesh_placed = mesh

    def tied(self) -> None:
        """Weights that are one stay one."""
        first: dict[str, Any] = {}
        for path, tensor in self.spec["parameters"].items():
            if tensor in self.spec["tied"]:
                for owner, attribute in _owners(self.network, path):
                    if tensor in first:
                        setattr(owner, attribute, first[tensor])
                    first.setdefault(tensor, getattr(owner, attribute))

    def forward(self) -> Any:
        self.places.copies.clear()
        return super().forward()

    def arriving(self, like: list[Any]) -> list[Any]:
        from torch.distributed.tensor import Replicate, distribute_tensor

        out = []
        on = self.counter.on
        self.counter.on = False
        for g, (_, places) in zip(self.gradients_out(None), like, strict=True):
            placements = [Replicate() if p.is_partial() else p for p in places]
            out.append(distribute_tensor(g, self.mesh_placed, placements))
        self.counter.on = on
        self.places.copies.clear()
        return out

    def backward(self, results: Any) -> None:
        import torch

        torch.autograd.backward(list(results), self.arriving([(r.shape, r.placements) for r in results]))
        self.places.copies.clear()


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
            flow = _local(flow)
            return flow.clone() if flow._is_view() else flow  # a split backward pass detaches it in place

    return Consecutive


class Staged(PlacedRun):
    """``torch.distributed.pipelining``: consecutive parts are stages; DTensor places what is in them, where told."""

    modules = (*PlacedRun.modules, "torch.distributed.pipelining")

    def prepare(self) -> None:
        import torch
        from torch.distributed import pipelining

        spec = self.spec
        self.placed = "dtensor" in spec["method"]
        if self.placed:
            self.place()
        every: list[tuple[Any, dict[str, Any]]] = []
        for said in spec["chain"]:
            child = getattr(self.network, said["attribute"])
            every += [(one, said) for one in (child if isinstance(child, torch.nn.ModuleList) else [child])]
        size, at = self.mesh["pipe"].size(), self.mesh["pipe"].get_local_rank()
        chunks, counts, vee = spec["chunks"], spec["parts"], spec["vee"]
        starts = [sum(counts[:n]) for n in range(len(counts))]
        homes = [s % size if not vee or s < size else 2 * size - 1 - s for s in range(size * chunks)]
        mine = [s for s, home in enumerate(homes) if home == at]
        make = _chain(self)
        self.parts = torch.nn.ModuleList(make(every[starts[s] : starts[s] + counts[s]]) for s in mine)
        self.plain = self.network
        names: dict[int, list[str]] = {}
        for name, weight in self.plain.named_parameters(remove_duplicate=False):
            names.setdefault(id(weight), []).append(name)
        self.several = [said for said in names.values() if len(said) > 1]
        wrapped: list[Any] = [*self.parts]
        if {"fsdp2", "replicate"} & {*spec["method"].split("+")}:
            for part in self.parts:
                self.gradient_scale = _sharded(self, part)
        elif spec["batch_meshes"]:
            from torch.nn.parallel import DistributedDataParallel

            group = self.mesh.get_group(spec["batch_meshes"][0])
            wrapped = [DistributedDataParallel(p, process_group=group) for p in self.parts]
            self.gradient_scale = float(self.mesh[spec["batch_meshes"][0]].size())
        self.network = self.parts
        group = self.mesh.get_group("pipe")
        stages = [
            pipelining.PipelineStage(w, s, size * chunks, torch.device("cpu"), group=group)
            for w, s in zip(wrapped, mine, strict=True)
        ]
        self.batch()
        record = getattr(pipelining, spec["schedule"])
        several = chunks > 1 or spec["several"]
        options = {"loss_fn": lambda out, g: (out * g).sum(), "scale_grads": False}
        self.schedule = record(stages if several else stages[0], spec["microbatches"], **options)
        self.first, self.last = 0 in mine, size * chunks - 1 in mine
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

        if name in self.named:
            name = self.named[name]
        return DTensor.from_local(value, self.mesh_placed, self.resting(name), run_check=False)

    def told(self, stage: Any, name: str, phase: str) -> None:
        """Makes known in which phase a message is sent: the schedule sends it later, with others."""
        make, phases = getattr(stage, name), self.counter.phases

        def made(*arguments: Any) -> Any:
            operations = make(*arguments)
            for operation in operations:
                phases[operation.tensor.data_ptr()] = phase
            return operations

        setattr(stage, name, made)

    def batch(self) -> None:
        """This rank's part of the inputs: the first of them flows in, others are named."""
        spec, meshes = self.spec, self.spec["batch_meshes"]
        self.named = dict(zip(spec["names"], spec.get("inputs", spec["names"]), strict=True))
        self.given = []

        def own(tensor: Any, name: str) -> Any:
            tensor = self.part(tensor, meshes, 0)
            said = spec["rests"].get(name, []) if self.placed else []
            for mesh, dim in zip(spec["placed_meshes"] if said else (), said, strict=True):
                tensor = self.part(tensor, [mesh], dim) if isinstance(dim, int) else tensor
            return tensor

        for tensor, name, on in zip(self.inputs, spec["names"], self.trained, strict=True):
            mine = own(tensor, self.named[name])
            self.given.append(mine.detach().clone().requires_grad_(on))
        count, (out,) = spec["microbatches"], self.gradients_out(None)
        # A loss is the mean of those of the microbatches, and of the ranks of the data.
        self.out = own(out, spec["last"]) if out.ndim else out.expand(count) / count / self.gradient_scale

    def step(self, keeper: SavedStorages | None) -> None:
        import torch.distributed as dist

        self.clear()
        self.counter.reset()
        self.counter.on = True
        self.counter.phase = "step"
        if self.placed:
            self.places.copies.clear()
        flows = self.given[:1] if self.first else []
        target = {"target": self.out} if self.last else {}
        others = dict(zip(self.spec["names"][1:], self.given[1:], strict=True))
        self.schedule.step(*flows, **target, **others, return_outputs=False)
        for weight in self.shared:
            self.counter.phase = "backward"
            dist.all_reduce(_local(weight.grad), group=self.both)
        self.counter.on = False

    def gradients(self) -> dict[str, Any]:
        first = {name: names[0] for names in self.several for name in names}  # units make two of one weight
        owned = {id(p): first.get(n, n) for n, p in self.plain.named_parameters()}
        found = {owned[id(p)]: p.grad for p in self.parts.parameters() if p.grad is not None}
        return {n: self.whole(g) * self.gradient_scale for n, g in found.items()}


class PlacedAndSharded(PlacedRun):
    """DTensor inside, and ``fully_shard`` or ``replicate`` over the data around it."""

    modules = (*PlacedRun.modules, *FullySharded.modules)

    def prepare(self) -> None:
        axes, meshes = self.spec["batch"], self.spec["batch_meshes"]
        self.inputs = tuple(
            self.part(t, meshes, dim).clone() if dim is not None else t  # a view would keep the whole batch alive
            for t, dim in zip(self.inputs, axes["inputs"], strict=True)
        )
        super().prepare()
        self.gradient_scale = _sharded(self)

    def gradients_out(self, results: Any) -> list[Any]:
        axes, meshes = self.spec["batch"], self.spec["batch_meshes"]
        shares = math.prod(self.mesh[name].size() for name in meshes)  # a loss is the mean of those of the ranks
        return [self.part(g, meshes, dim) if dim is not None else g / shares
                for g, dim in zip(super().gradients_out(results), axes["results"], strict=True)]  # fmt: skip


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
        from torch.distributed.tensor import distribute_tensor

        Cached.prepare(self)
        self.place()
        for one, name, tensor, _ in self.kept():
            setattr(one, name, distribute_tensor(getattr(one, name), self.mesh_placed, self.resting(tensor)))
        self.given = [distribute_tensor(t, self.mesh_placed, self.resting(name))
                      for t, name in zip(self.given, self.spec["inputs"], strict=True)]  # fmt: skip


METHODS: dict[str, type[OneProcess]] = {
    "cached": Cached, "cached+dtensor": PlacedCached,
    "single": OneProcess, "ddp": DataParallel, "zero1": DataParallel, "fsdp2": FullySharded, "dtensor": PlacedRun,
    "fsdp2+dtensor": PlacedAndSharded, "replicate+dtensor": PlacedAndSharded, "pipelining": Staged,
}  # fmt: skip


def _way(method: str) -> type[OneProcess]:
    """What runs a method: stages may be trained in any of the other ways."""
    return METHODS[method.partition("+")[0] if method.startswith("pipelining") else method]


# -- bytes that go through sockets ----------------------------------------------------------------------


def received() -> int:
    """The bytes that the TCP connections of this process have received, as the kernel counts them."""
    import socket
    import struct

    total = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            if not str(path.readlink()).startswith("socket:"):
                continue
            with socket.fromfd(int(path.name), socket.AF_INET, socket.SOCK_STREAM) as one:
                total += struct.unpack_from("Q", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 128)[0]
        except (OSError, struct.error):
            continue  # closed meanwhile, or none of TCP
    return total


def through_sockets(made: OneProcess) -> dict[str, int]:
    """The share of a tensor that this rank receives, in parts of 1/(8 k), for each kind of call in the counted step.

    Gloo puts headers before what it sends, some more or less by who comes first: tensors of two sizes are sent, and
    such a part of the difference is far more than that.
    """
    import torch
    import torch.distributed as dist

    def once(kind: str, group: Any, count: int) -> int:
        ranks, whole = dist.get_process_group_ranks(group), torch.ones(count)
        part = whole[: count // len(ranks)].clone()
        dist.barrier(group)
        time.sleep(0.02)
        before = received()
        if kind == "all-reduce":
            dist.all_reduce(whole, group=group)
        elif kind == "all-gather":
            dist.all_gather_into_tensor(whole, part, group=group)
        elif kind == "reduce-scatter":
            dist.reduce_scatter_tensor(part, whole, group=group)
        else:
            dist.broadcast(whole, ranks[0], group=group)
        time.sleep(0.02)  # what is still on its way
        return received() - before

    found = {}
    for kind, axes in sorted({(call["kind"], call["group"]) for call in made.counter.calls}):
        names = tuple(axes.split("+"))
        group = (made.mesh[names]._flatten() if len(names) > 1 else made.mesh[names[0]]).get_group()
        one, two = (min(once(kind, group, n * PROBE) for _ in range(3)) for n in (1, 2))
        found[f"{kind} {axes}"] = round(8 * group.size() * (two - one) / (4 * PROBE))
    return found


def _losses(spec: dict[str, Any]) -> Any:
    """Losses over classes that are cut, in either pass."""
    if not spec.get("loss_parallel"):
        return nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel

    return loss_parallel()


@contextmanager
def _kinks() -> Iterator[list[float]]:
    """What ReLU reads so near to zero that sums in another order may fall on its other side: no gradient to compare."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[float] = []

    class Near(TorchDispatchMode):  # type: ignore[misc]  # torch has no type hints here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func._overloadpacket == torch.ops.aten.relu:
                least = args[0].abs().min().item()
                found.extend([least] if least < KINK else ())
            return func(*args, **(kwargs or {}))

    with Near():
        yield found


def run(spec: dict[str, Any], rank: int) -> dict[str, Any]:
    """The counts of a rank in the last of a few steps."""
    import torch

    if spec["method"] == "measure":
        from symcomm.verify.stopwatch import measured

        return measured(spec)
    if spec["method"] == "rows":
        from symcomm.verify.stopwatch import rows

        return rows(spec, OneProcess(spec, 0))
    if "kept" in spec:
        return decoded(spec, rank)
    for seed in range(spec["seed"], spec["seed"] + 20):
        spec = {**spec, "seed": seed}
        alone = OneProcess({**spec, "ranks": 1}, 0)
        alone.prepare()
        with _kinks() as near:
            alone.step(None)
        if not near:
            break
    reference = alone.gradients()
    made = _way(spec["method"])(spec, rank)
    made.prepare()
    keeper = None
    with made.counter.mode(), _losses(spec):
        for number in range(STEPS):
            watched = number == STEPS - 1 and "pipelining" not in spec["method"]
            keeper = SavedStorages(made) if watched else None
            made.step(keeper)
    found: dict[str, Any] = {
        "rank": rank, "calls": made.counter.calls, "flops": made.counter.flops,
        "parameters": sum(_local(p).numel() for p in made.network.parameters()),
        "saved": sum(keeper.bytes.values()) if keeper is not None else None,
        "torch": torch.__version__,
    }  # fmt: skip
    # Some gradients are zero but for rounding, as those of the keys' bias before a softmax.
    largest = max((g.abs().max().item() for g in reference.values()), default=0.0)
    errors = [
        (gradient - reference[name]).abs().max().item() / max(largest / 100, reference[name].abs().max().item())
        for name, gradient in made.gradients().items()
    ]
    found["gradient_error"] = max(errors, default=None)
    if spec.get("sockets"):
        found["received"] = through_sockets(made)
    if spec["peak"]:
        with _losses(spec):
            found["peak"] = _peak(made)
    return found


def decoded(spec: dict[str, Any], rank: int) -> dict[str, Any]:
    """The counts of a rank in a step behind a prompt, and how far its results are from those of one pass."""
    import torch

    made = _way(spec["method"])(spec, rank)
    assert isinstance(made, Cached)
    with torch.no_grad(), made.counter.mode():
        made.prepare()
        before = [(one, name, getattr(one, name)) for one, name, *_ in made.kept()]
        for _ in range(2):  # in the first one DTensor works out shapes, by the same ops
            made.counter.reset()
            for one, name, cache in before:
                setattr(one, name, cache)
            made.counter.on = True
            results = made.forward()
            made.counter.on = False
        error = made.error(results)
    received = {"received": through_sockets(made)} if spec.get("sockets") else {}
    return received | {
        "rank": rank, "calls": made.counter.calls, "flops": made.counter.flops, "gradient_error": error,
        "parameters": sum(_local(p).numel() for p in made.network.parameters()), "torch": torch.__version__,
        "cache": sum(_local(cache).nbytes for *_, cache in before),
    }  # fmt: skip


def take_part(spec: dict[str, Any], rank: int) -> dict[str, Any]:
    """The counts of a rank in a run with the others."""
    import torch

    torch.set_num_threads(1)
    if spec["ranks"] > 1:
        from datetime import timedelta

        import torch.distributed as dist

        limit = timedelta(seconds=spec["limit"])
        dist.init_process_group("gloo", init_method=spec["meeting"], rank=rank, world_size=spec["ranks"], timeout=limit)
    fault = spec["fault"]
    if fault and rank == fault["rank"]:  # what tests ask for
        if fault["what"] == "hang":
            time.sleep(3600)
        raise RuntimeError("a test lets this rank fail")
    found = run(spec, rank)
    if spec["ranks"] > 1:
        dist.barrier()
        dist.destroy_process_group()
    return found


def _peak(made: OneProcess) -> int:
    """The most bytes of storages that are alive at once in the backward pass, without tables.

    What the run itself would hold is made where the pass needs it: inputs come from a function, and the gradients of
    the results from one that stands behind them.
    """
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    seen: dict[int, tuple[Any, int]] = {}
    added = False  # the engine adds gradients in place where Python does not look on: what an addition leaves counts
    tables = {_storage(b)._cdata for b in made.network.buffers()}
    peak = 0

    def add_all(tensors: Iterable[Any]) -> None:
        for storage in map(_storage, tensors):
            if storage._cdata not in tables:
                seen[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

    def count() -> None:
        nonlocal peak
        for key in [k for k, (ref, _) in seen.items() if ref.expired()]:
            del seen[key]
        constants = {_storage(one)._cdata for one in made.constants}
        peak = max(peak, sum(size for key, (_, size) in seen.items() if key not in constants))

    class Alive(TorchDispatchMode):  # type: ignore[misc]  # torch has no type hints here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal added
            if added:
                count()
            found = func(*args, **(kwargs or {}))
            add_all(t for t in tree_leaves(found) if isinstance(t, torch.Tensor))
            added = func._overloadpacket == torch.ops.aten.add
            if not added:
                count()
            return found

    class Begin(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, switch: Any, *given: Any) -> Any:
            return tuple(t.clone() for t in given)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return (None,) * (len(gradients) + 1)

    class End(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *results: Any) -> Any:
            ctx.like = [(tuple(r.shape), getattr(r, "placements", None)) for r in results]
            return _local(results[0]).new_empty(0)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            nonlocal peak
            out = made.arriving(ctx.like)
            peak = 0
            return tuple(out)

    add_all(made.network.parameters())
    given, switch = made.given, torch.empty(0, requires_grad=True)
    plain = [t.detach() for t in given if t.requires_grad]
    passes: list[int] = []
    # What stays, such as buckets, has been seen in the first step. A thread of gloo may let a tensor go a moment late.
    for _ in range(2 if made.spec["ranks"] == 1 else 4):
        made.clear()
        with Alive():
            floats = iter(Begin.apply(switch, *plain))
            made.given = [next(floats) if t.requires_grad else t for t in given]
            del floats
            add_all(made.given)
            results = made.forward()
            made.given = []
            end = End.apply(*results)
            del results
            torch.autograd.backward([end], [torch.empty(0)])
        made.given = given
        passes.append(peak)
    return min(passes[1:])


# -- processes --------------------------------------------------------------------------------------------


def _with(parent: int) -> None:
    """Ends this rank when what has forked it is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _rank(folder: Path, spec: dict[str, Any], rank: int, parent: int) -> None:
    """Takes part as a rank; what went wrong is written where the launcher finds it."""
    log = os.open(folder / f"log{rank}.txt", os.O_WRONLY | os.O_CREAT)
    for number, target in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(target, number)
    threading.Thread(target=_with, args=(parent,), daemon=True).start()
    found: dict[str, Any]
    try:
        found = take_part(spec, rank)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"[:2000], "trace": traceback.format_exc()[-6000:]}
    part = folder / f"rank{rank}.part"
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(folder / f"rank{rank}.json")
    sys.stdout.flush()
    os._exit("error" in found)  # threads of PyTorch's may still wait for other ranks


def _forked(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Forks the ranks of a run and tells how each ended; when one fails or time is up, all others are ended."""
    waiting: dict[int, int] = {}
    parent = os.getpid()
    for rank in range(spec["ranks"]):
        pid = os.fork()
        if not pid:
            try:
                _rank(folder, spec, rank, parent)
            finally:
                os._exit(1)
        waiting[pid] = rank
    statuses = [0] * spec["ranks"]
    late: list[int] = []
    until = time.monotonic() + spec["limit"]
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            rank = waiting.pop(pid)
            statuses[rank] = os.waitstatus_to_exitcode(status)
            if statuses[rank]:
                until = min(until, time.monotonic() + 0.3)  # those that fail with it write why
        elif select.select([0], [], [], 0.01)[0] or time.monotonic() > until:  # the launcher is gone, or time is up
            late = late or ([] if any(statuses) else sorted(waiting.values()))
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
    return {"statuses": statuses, "waiting": late}


def main() -> None:
    """Reads the folders of runs, a line each, and answers with a line when all ranks of one have ended."""
    import torch.distributed as dist

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:  # ends with the launcher
        folder = Path(line.rstrip("\n"))
        spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        steps = dist.is_available() and spec["method"] not in ("measure", "rows")
        for name in _way(spec["method"]).modules if steps else ():
            importlib.import_module(name)  # once for all ranks
        print(json.dumps(_forked(folder, spec)), file=answers, flush=True)


if __name__ == "__main__":
    main()
