"""The buckets of gradients are those that PyTorch makes."""

import random
from itertools import pairwise

import pytest
from api import FIRST, USUAL, assignment, partition

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


def theirs(shapes: list[tuple[int, str]], limits: list[int]) -> tuple[tuple[int, ...], ...]:
    import torch.distributed as dist

    tensors = [torch.empty(count, dtype=getattr(torch, kind)) for count, kind in shapes]
    return tuple(tuple(bucket) for bucket in dist._compute_bucket_assignment_by_size(tensors, limits)[0])


def test_random_tensors_of_several_formats_are_put_into_the_buckets_of_pytorch():
    rng = random.Random(21)
    for _ in range(400):
        kinds = rng.sample(sorted(BYTES), rng.choice([1, 1, 2, 3]))
        shapes = [(rng.randint(1, 40), rng.choice(kinds)) for _ in range(rng.randint(1, 25))]
        first = rng.randint(1, 120)
        cap = first + rng.randint(0, 200)
        sizes = [(count * BYTES[kind], kind) for count, kind in shapes]
        assert assignment(sizes, cap, first) == theirs(shapes, [first, cap])
        assert assignment(sizes, cap, cap) == theirs(shapes, [cap])


def test_a_bucket_is_closed_where_its_size_reaches_the_cap_exactly():
    shapes = [(2, "float32")] * 5
    assert theirs(shapes, [8, 16]) == ((0,), (1, 2), (3, 4))
    assert assignment([(8, "float32")] * 5, 16, 8) == ((0,), (1, 2), (3, 4))


@pytest.mark.parametrize("cap", [None, 1, 2, 5])
def test_a_model_in_data_parallelism_has_these_buckets_after_its_first_step(cap, tmp_path):
    """One rank is enough: buckets are rebuilt in the order in which gradients became ready."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rng = random.Random(5)
    widths = [rng.choice([64, 200, 512, 700]) for _ in range(9)]
    layers = [torch.nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
    sizes = [4 * layer.weight.numel() for layer in reversed(layers)]
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=cap)
        seen: list[int] = []

        def watch(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            seen.append(bucket.buffer().nbytes)
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        model.register_comm_hook(None, watch)
        for _ in range(3):
            seen.clear()
            model(torch.ones(1, widths[0])).sum().backward()
    finally:
        dist.destroy_process_group()
    made = partition(sizes, USUAL, FIRST) if cap is None else partition(sizes, cap * 2**20, cap * 2**20)
    assert [sum(bucket) for bucket in made] == seen
