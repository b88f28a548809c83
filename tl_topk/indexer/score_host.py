"""How the programs that score keys are compiled, and what their launch takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tl_topk.indexer.shapes import DIM, PAGE, SCALE_BYTES, ScoreShape
from tl_topk.indexer.tensor_maps import TensorMap, host_with_maps
from tl_topk.tile.compiler import Kernel, Program
from tl_topk.tile.toolchain import header_folder, with_included

__all__ = ["ARCH", "RESULT_KINDS", "score_kernel"]

ARCH = "sm_90a"
#: The roles synchronise themselves; TileLang would put barriers of all consumers around the calls
#: of device functions. Without its barriers no two buffers may share memory either.
_PASSES = {
    "tl.disable_out_of_bound_warning": True,
    "tl.disable_shared_memory_reuse": True,
    "tl.disable_thread_storage_sync": True,
}
#: Of every launch, in order, before ``grid`` (thread blocks) and ``stream``; all are passed as
#: integers. Arrays that a program does not use may be anything.
_SCORING = {
    "q": "void*",  # (rows * heads, 128)
    "keys": "void*",  # (pages, 64 keys and their scales) or (width, 128)
    "scales": "float*",  # (width,); on pages they lie with the keys
    "weights": "float*",  # (rows * heads,)
    "table": "int*",  # (groups, table_width), for pages
    "lens": "int*",  # (groups, 1 or queries), for pages
    "starts": "int*",  # (rows,), for keys in a row
    "lengths": "int*",  # (rows,): written for pages unless lens_are_lengths, else read
    "scores": "float*",  # (rows, width), written where a row sees keys
    "groups": "int",
    "rows": "int",
    "pages": "int",
    "table_width": "int",
    "width": "int",
}
#: Then those of fused programs.
_FUSED = {
    "exchange": "uchar*",
    "indices": "int*",  # (rows, k), written
    "offsets": "int*",  # (rows,), for ragged results
    "capacity": "int",
    "nonce": "int",
    "k": "int",
    "result_kind": "int",
}
#: The numbers of indexer_tail.cuh.
RESULT_KINDS = {"positions": 0, "slots": 1, "ragged": 2}


def score_kernel(shape: ScoreShape, timed: bool = False) -> Program:
    """The program for ``shape``. A timed one, for benchmarks, also keeps clocks: see
    ``indexer_clock.cuh``.
    """
    here = Path(__file__).parent
    names = ("score_host", "score_program", "shapes", "sizes", "tensor_maps")
    sources = [here / f"{name}.py" for name in names]
    header = "indexer_tail" if shape.fused else "indexer_scores"
    sources += with_included([header_folder() / f"cuda/{header}.cuh"])

    def trace() -> Any:
        from tl_topk.indexer.score_program import score_program

        return score_program(shape)

    return Program(
        name=f"indexer-{shape.name}{'-timed' * timed}",
        trace=trace,
        arguments=(*_SCORING, *(_FUSED if shape.fused else ())),
        sources=tuple(sources),
        passes=_PASSES,
        flags=("-DTL_TOPK_PHASE_CLOCK",) if timed else (),
        host=partial(_host, shape),
    )


def _host(shape: ScoreShape, kernel: Kernel) -> str:
    kind, size = ("uint8", 1) if shape.float8 else ("bfloat16", 2)
    panel = 128 // size  # what one copy brings of a row: swizzled tiles are 128 bytes wide
    row_bytes = DIM * size
    maps = [
        TensorMap(
            "q",
            kind,
            sizes=(str(DIM), f"rows * {shape.heads}"),
            strides=(row_bytes,),
            box=(panel, shape.columns),
            swizzled=True,
        )
    ]
    if shape.paged:
        page_bytes = PAGE * (row_bytes + SCALE_BYTES * shape.float8)
        maps += [
            TensorMap(
                "keys",
                kind,
                sizes=(str(DIM), str(PAGE), "pages"),
                strides=(row_bytes, page_bytes),
                box=(panel, PAGE, 1),
                swizzled=True,
            ),
            TensorMap(
                "scales",
                "float32",
                sizes=(str(PAGE), "pages"),
                strides=(page_bytes,),
                box=(PAGE, 1),
                swizzled=False,
                offset=PAGE * row_bytes,
            ),
        ]
    else:
        maps.append(
            TensorMap(
                "keys",
                kind,
                sizes=(str(DIM), "width"),
                strides=(row_bytes,),
                box=(panel, shape.tile),
                swizzled=True,
            )
        )
    return host_with_maps(kernel, {**_SCORING, **(_FUSED if shape.fused else {})}, maps)
