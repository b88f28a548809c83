"""``tl-topk select``: the top k of every row of a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
from rich.table import Table

from tl_topk.api import topk
from tl_topk.cli.common import backend_option, json_option, print_json, progress, show
from tl_topk.dispatch import decide
from tl_topk.files import ScoreFile, load_integers, open_scores, save_npz
from tl_topk.placement import BITS, Placement, bits_of
from tl_topk.problem import ORDERS, Problem

__all__ = ["select"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

# Rows are read, selected and reported in blocks of about this many bytes.
_BLOCK_BYTES = 2**25
_ROWS_SHOWN, _SLOTS_SHOWN = 8, 6


@click.command()
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("-k", required=True, type=int, help="How many of each row.")
@click.option("--lengths", type=click.Path(path_type=Path), help=".npy: elements of each row.")
@click.option("--row-starts", type=click.Path(path_type=Path), help=".npy: first of each row.")
@click.option("--order", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True)
@click.option("--smallest", is_flag=True, help="Select the smallest instead.")
@backend_option
@click.option("--name", help="Which array of an .npz or .safetensors file.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write an .npz there.")
@json_option
def select(
    scores: Path,
    k: int,
    lengths: Path | None,
    row_starts: Path | None,
    order: str,
    smallest: bool,
    backend: str,
    name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Select the top K of every row of SCORES (.npy, .npz or .safetensors).

    The output holds `indices` (int32) and `values`, both (rows, K); bfloat16 values are written as
    float32, which holds them exactly. Without -o, the JSON holds them.
    """
    file = open_scores(scores, name)
    if output is not None and output.suffix != ".npz":
        raise click.UsageError(f"--output must end in '.npz', got {output.name!r}")
    placement = Placement.of(backend, file.dtype)
    problem = Problem(
        rows=file.rows,
        width=file.width,
        k=k,
        dtype=file.dtype,
        order=order,
        largest=not smallest,
        device_type=placement.device_type,
    )
    decision = decide(problem, backend)  # before anything is read
    options: dict[str, Any] = {
        "lengths": lengths and load_integers(lengths, "lengths", file.rows),
        "row_starts": row_starts and load_integers(row_starts, "row_starts", file.rows),
        "largest": not smallest,
        "order": order,
        "backend": backend,
    }
    begin = time.perf_counter()
    values, indices = _select_blocks(file, k, placement, **options)
    seconds = time.perf_counter() - begin
    if len(file.shape) == 1:
        values, indices = values[0], indices[0]

    if output is not None:
        save_npz(output, {"indices": indices, "values": values})
    if as_json:
        report: dict[str, object] = {
            "scores": str(scores),
            "rows": file.rows,
            "width": file.width,
            "dtype": file.dtype,
            "k": k,
            "order": order,
            "largest": not smallest,
            "backend": decision.backend,
            "seconds": seconds,
            "output": None if output is None else str(output),
        }
        if output is None:
            report |= {"indices": indices.tolist(), "values": values.tolist()}
        print_json(report)
        return
    show(
        f"{file.rows} rows x {file.width} {file.dtype}, k = {k}, in {seconds:.3f} s on backend"
        f" {decision.backend}",
        _table(np.atleast_2d(indices), np.atleast_2d(values)),
    )
    if output is not None:
        show(f"written to {output}")


def _select_blocks(
    file: ScoreFile,
    k: int,
    placement: Placement,
    *,
    lengths: Ndarray | None,
    row_starts: Ndarray | None,
    largest: bool,
    order: str,
    backend: str,
) -> tuple[Ndarray, Ndarray]:
    """(values, indices), block after block of rows."""
    bits = BITS[file.dtype]
    indices = np.empty((file.rows, k), np.int32)
    values = np.empty((file.rows, k), bits)
    step = max(1, _BLOCK_BYTES // max(1, file.width * np.dtype(bits).itemsize))
    with progress("rows") as bar:
        task = bar.add_task("selecting", total=file.rows)
        for first in range(0, file.rows, step):
            last = min(first + step, file.rows)
            block = placement.put(bits_of(file.read(first, last)), file.dtype)
            result = topk(
                block,
                k,
                lengths=None if lengths is None else placement.put(lengths[first:last], "int64"),
                row_starts=(
                    None if row_starts is None else placement.put(row_starts[first:last], "int64")
                ),
                largest=largest,
                order=order,
                backend=backend,
            )
            values[first:last] = bits_of(result.values)
            indices[first:last] = bits_of(result.indices).view(np.int32)
            bar.advance(task, last - first)
    if file.dtype == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32), indices
    return values.view(file.dtype), indices


def _table(indices: Ndarray, values: Ndarray) -> Table:
    """The first slots of the first rows."""
    table = Table()
    table.add_column("row", justify="right", no_wrap=True, min_width=len("row"))
    table.add_column("index: value", no_wrap=True)
    for row in range(min(len(indices), _ROWS_SHOWN)):
        shown = zip(indices[row, :_SLOTS_SHOWN], values[row, :_SLOTS_SHOWN], strict=True)
        slots = [f"{index}: {value:.4g}" for index, value in shown]
        more = ["..."] if indices.shape[1] > _SLOTS_SHOWN else []
        table.add_row(str(row), "  ".join(slots + more))
    if len(indices) > _ROWS_SHOWN:
        table.add_row("...", "")
    return table
