"""``tl-topk compile``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tl_topk.cli.common import json_option, print_json, progress, show
from tl_topk.problem import DTYPES

__all__ = ["compile_kernels"]

_ARCH = re.compile(r"sm_(\d+)[af]?$")


def _numbers(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected integers with commas between, got {text!r}") from None


def _names(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in DTYPES]
    if unknown:
        raise click.BadParameter(f"expected some of {', '.join(DTYPES)}, got {unknown[0]!r}")
    return names


@click.command("compile")
@click.option("--arch", default="sm_90a", show_default=True, help="As nvcc calls it.")
@click.option(
    "--k", "ks", default="512,1024,2048,4096", show_default=True, callback=_numbers,
    help="Each is served by the smallest kernel that can.",
)  # fmt: skip
@click.option("--dtype", "dtypes", default=",".join(DTYPES), show_default=True, callback=_names)
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default="kernels",
    show_default=True, help="The folder; TL_TOPK_KERNELS is to name it later.",
)  # fmt: skip
@json_option
def compile_kernels(
    arch: str, ks: tuple[int, ...], dtypes: tuple[str, ...], output: Path, as_json: bool
) -> None:
    """Compile the TileLang kernels ahead of time, into libraries that need no TileLang.

    Set TL_TOPK_KERNELS to the folder where they are to be used; each can also be loaded by itself,
    with tvm_ffi.load_module.
    """
    # Imported late: the other commands have no use for it.
    from tl_topk.tile.choice import all_kernels
    from tl_topk.tile.library import export
    from tl_topk.tile.pipelined import program
    from tl_topk.tile.toolchain import architecture

    found = _ARCH.match(arch)
    if found is None:
        raise click.BadParameter(f"--arch: expected a name such as sm_90a, got {arch!r}")
    capability = int(found[1])
    architecture(capability)  # refuses what there are no kernels for
    wanted = dict.fromkeys(
        which for dtype in dtypes for k in ks for which in all_kernels(dtype, k, capability)
    )
    paths = []
    with progress("kernels") as bar:
        task = bar.add_task(f"compiling for {arch}", total=len(wanted))
        for path in export(map(program, wanted), arch, output):
            bar.advance(task)
            paths.append(str(path))
    if as_json:
        print_json({"arch": arch, "libraries": paths})
        return
    for text in paths:
        show(text)
