"""``symcomm search``: the fastest strategies and sizes that fit."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from symcomm.cli import shared

_search_options = shared.options(
    click.option("--devices", type=int, required=True, help="How many devices the mesh has."),
    click.option("--device", help="A device, for its rates: H100-SXM, ...; a network of them: DGX-H100, or pod.yaml."),
    click.option("--capacity", help="The memory of one device, where it is not the device's: '80 GB'."),
    click.option("--capacity-is", help="What a capacity means: nominal_GB, nominal_GiB or usable. Never supposed."),
    click.option("--host-capacity", help="The memory of a host, of what is offloaded: '2 TB shared by 8'."),
    click.option("--nvme-capacity", help="The NVMe disks of a host, of what rests there: '30 TB shared by 8'."),
    click.option("--strategy", "strategies", multiple=True, help="A strategy to try, without sizes; may be repeated."),
    click.option("--microbatches", help="Such as 1..64*2 or 1,2,3; all divisors of the batch unless told."),
    click.option("--recomputation", help="Some of none,selective,full; all of them unless told."),
    click.option("--schedule", "schedules", help="Some of 1f1b, gpipe and others that take as long; 1f1b unless told."),
    click.option("--sizes", multiple=True, metavar="NAME=RANGE", help="tensor=1..8, or L=1024,2048; may be repeated."),
    click.option("--buckets", help="Numbers of gradient buckets, such as 1..64*2."),
    click.option("--call-overhead", help="The overhead of one bucket's call: '20 us'."),
    click.option("--prompt", type=int, help="Of serving: the tokens of a prompt, for the time to the first token."),
    click.option("--prompts", type=int, default=1, help="Of serving: the prompts that a replica reads at once."),
    click.option("--first-token", help="Of serving: the longest time to the first token: '500 ms'."),
    click.option("--per-token", help="Of serving: the longest time between two tokens: '50 ms'."),
    click.option("--formats", multiple=True, help="Of serving: formats, such as weights=int8; may be repeated."),
    click.option("--recipe", default="mixed_adam", show_default=True, help="What a parameter keeps."),
    click.option("--frozen", help="Weights that are not trained: 'W^E, W^Q'."),
    click.option("--top", default=10, show_default=True, help="How many of the fastest are told."),
    click.option("--peaks", is_flag=True, help="Hold those that are told against their peak memory, too."),
    click.option("--jobs", type=int, help="Worker processes."),
    click.option("--seconds", default=600.0, show_default=True, help="The longest that it may take."),
    click.option("--plot", "picture", type=click.Path(path_type=Path), help="A picture of the front: front.svg."),
    click.option("--detail", type=click.Choice(["brief", "full"]), default="brief", show_default=True,
                 help="Full also names the conventions and what each means."),
    click.option("--json", "as_json", is_flag=True, help="For a program."),
    click.option("--links", help="The links of mesh axes: 'tensor=900 GB/s, data=50 GB/s @ 5 us, pipe=50 GB/s'."),
    *(click.option(f"--{rate}", help=f"Instead of the device's: '{such}'.") for rate, such in
      (("peak", "312 TFLOP/s"), ("memory", "2039 GB/s"), ("network", "300 GB/s"), ("latency", "3 us"))),
    click.option("--utilisation", help="The sustained part of the peak rate and the memory bandwidth: 4/5."),
)  # fmt: skip


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@_search_options
@click.option("--at", multiple=True, metavar="NAME=VALUE,...", help="Numbers: N_layer=32,D=4096.")
@shared.accounting_option
@shared.reading
@shared.stepping
@click.option("-o", "--output", type=shared.PATH, help="A file instead of the terminal.")
def search(
    file: Path, strategies: tuple[str, ...], sizes: tuple[str, ...], at: tuple[str, ...], accounting: tuple[str, ...],
    picture: Path | None, as_json: bool, output: Path | None, detail: str, formats: tuple[str, ...], **options: Any,
) -> None:  # fmt: skip
    """Search the fastest strategies for a model on a cluster.

    FILE has the model; its memory must fit. What limits them is said, too.

    \b
    symcomm search model.md --devices 64 --device H100-SXM --capacity-is nominal_GB --batch 512

    symcomm search llama.json --phase decode --past 8192 --devices 8 --device H100-SXM --capacity-is nominal_GB \
        --batch 1..64 --prompt 2048 --per-token '20 ms'

    --batch is the global batch here (512, or 256,512); the symbol of a batch axis that the table leaves out also goes
    there. Exit status 1 where nothing fits.
    """
    with shared.progress_bar("searching", at_once=True) as progress:
        from symcomm.core.errors import ValuesError
        from symcomm.exams.problems.deriving import accounting_of
        from symcomm.searching.run import search as searched

        device = str(options["device"] or "")
        if device.lower().endswith((".yaml", ".yml")):
            found_networks = shared.networks_of(device)
            if len(found_networks) != 1:
                raise ValuesError(f"{device} has {len(found_networks)} networks, and a search takes one")
            options["device"] = found_networks[0]
        read = {key: options.pop(key) for key in shared.READ}
        batch = read["batch"] if read["batch"][:1].isdigit() else None
        limits: dict[str, str] = {}
        for text in sizes:
            key, equals, said = text.partition("=")
            if not equals or key.strip() in limits:
                hint = "write --sizes tensor=1..8, each name once"
                raise ValuesError(f"--sizes: '{text[:60]}' gives no values", hint=hint)
            limits[key.strip()] = said
        model = shared.read_model(file, **read | ({"batch": ""} if batch else {})).at(**shared.values(at))
        found = searched(
            model, batch=batch, strategies=strategies or None, sizes=limits,
            accounting=accounting_of(shared.conventions(accounting)), progress=progress,
            formats=formats or None, **options,
        )  # fmt: skip
    if picture is not None and found.front:
        found.plot(picture)
    wide = 0 if output else shutil.get_terminal_size((0, 24)).columns  # of a terminal alone
    told = json.dumps(found.json(), indent=2, ensure_ascii=False) if as_json else found.text(detail, wide)
    shared.write(told, output, file)
    if not found.feasible:
        sys.exit(1)
