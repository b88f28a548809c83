"""Runs the CUDA kernels of `dsmem` on the CPU, thread by thread and a cluster at a time.

What is compiled is csrc/cuda itself, but for the wrappers of single instructions: see
tests/emulated/cluster.h. A hang and a write outside of shared memory end the process; undefined
behaviour is watched for. Races are not: those are compute-sanitizer's.
"""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference import DTYPES, ORDERS, PATTERN, Oracle, Order, Raw, assert_topk, bits_of, from_bits
from sample_plan import MOST_GROUPS, THREADS, SamplePlan
from test_native import ROOT, compiler

FOLDER = Path(__file__).parent / "emulated"
# Hidden, for loaders make one of all inline variables of a name, whichever library they are of.
FLAGS = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fvisibility=hidden")
# But bounds: a predicated store may name a place that is not there, and is then not made.
SANITIZE = ("-fsanitize=undefined", "-fno-sanitize=bounds", "-fno-sanitize-recover=all")
MARGIN = 5  # elements around the outputs that nothing may write
CANARY = 0x5A5A
_MOST_BLOCKS = 128  # that share a row


@dataclass(frozen=True)
class Watched:
    """What the blocks of a row say of its sample.

    Attributes:
        sample: elements that each thread of each block has loaded; NaN: none.
        maxima: of each block's groups, with their last bits rounded down.
        anchors: of each block: floor, low, ceiling.
        plan: of the last block.
    """

    sample: NDArray[np.float32]
    maxima: NDArray[np.float32]
    anchors: NDArray[np.float32]
    plan: SamplePlan


@dataclass(frozen=True)
class EmulatedKernels:
    """The kernels for one dtype."""

    dtype: str
    library: Any

    @staticmethod
    def build(dtype: str, folder: Path, *, mapped: bool = False) -> EmulatedKernels:
        library = folder / f"{'mapped' if mapped else 'kernels'}_{dtype}.so"
        command = [
            *(*compiler(), *FLAGS, *SANITIZE),
            f"-DEMULATED_DTYPE={DTYPES.index(dtype)}",
            *(["-DEMULATED_MAPPED"] if mapped else []),
            *(f"-I{path}" for path in (FOLDER / "kernel", FOLDER, ROOT / "csrc")),
            *(str(FOLDER / "select.cc"), str(ROOT / "csrc" / "config.cc"), "-o", str(library)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return EmulatedKernels(dtype, ctypes.CDLL(str(library)))

    def check(
        self,
        oracle: Oracle,
        k: int,
        order: Order = "any",
        *,
        blocks: int = 0,
        skew: int = 0,
        values: bool = True,
    ) -> None:
        """Fails unless the answer is the oracle's and nothing lies beside the outputs; scores begin
        ``skew`` elements after a boundary of 16 bytes. As many ``blocks`` share a row, or if that
        is 0 as the launcher chooses."""
        bits = bits_of(oracle.matrix)
        rows, width = bits.shape
        # NaN all around: what is outside must not matter.
        memory = np.full(rows * width + 64, ~bits.dtype.type(0), bits.dtype)
        first = -memory.ctypes.data % 16 // memory.itemsize + skew
        memory[first : first + bits.size] = bits.ravel()
        indices = np.full(rows * k + 2 * MARGIN, CANARY, np.int32)
        copied = np.full(rows * k + 2 * MARGIN, CANARY, PATTERN[self.dtype])
        vectors = [
            None if given is None else np.ascontiguousarray(given, np.int32)
            for given in (oracle.lengths, oracle.row_starts)
        ]
        self.library.emulated_topk(
            _pointer(memory[first:]),
            *(ctypes.c_longlong(width), rows, width, k),
            *(ORDERS.index(order), int(oracle.largest)),
            *map(_pointer, vectors),
            _pointer(indices[MARGIN:]),
            _pointer(copied[MARGIN:]) if values else None,
            blocks,
        )
        for outer in (indices, copied):
            assert (outer[:MARGIN] == CANARY).all()
            assert (outer[-MARGIN:] == CANARY).all()
        inner = slice(MARGIN, MARGIN + rows * k)
        shape = (*oracle.scores.shape[:-1], k)
        found = from_bits(copied[inner].reshape(shape), self.dtype) if values else None
        assert_topk(oracle, k, order, indices[inner].reshape(shape), found)

    def mapped(
        self,
        scores: NDArray[np.float32],
        k: int,
        order: Order,
        page_table: NDArray[np.int32],
        page_size: int,
        offsets: NDArray[np.int32] | NDArray[np.int64],
        outputs: str,
        *,
        next_n: int = 1,
        blocks: int = 0,
    ) -> dict[str, NDArray[np.int32]]:
        """Those of "slots", "ragged" and "indices" that ``outputs`` names, of kernels that map."""
        rows, width = scores.shape
        memory = np.full(rows * width + 64, np.nan, np.float32)
        first = -memory.ctypes.data % 16 // 4
        memory[first : first + scores.size] = scores.ravel()
        found = {name: np.full(rows * k + 2 * MARGIN, CANARY, np.int32) for name in outputs.split()}
        slots, ragged, indices = (
            _pointer(found[name][MARGIN:]) if name in found else None
            for name in ("slots", "ragged", "indices")
        )
        self.library.emulated_mapped(
            _pointer(memory[first:]),
            *(rows, width, k, ORDERS.index(order)),
            *(_pointer(page_table), *page_table.shape, page_size.bit_length() - 1, next_n),
            *(slots, ragged, _pointer(offsets), offsets.dtype == np.int64, indices, blocks),
        )
        for outer in found.values():
            assert (outer[:MARGIN] == CANARY).all()
            assert (outer[-MARGIN:] == CANARY).all()
        return {name: x[MARGIN:-MARGIN].reshape(rows, k) for name, x in found.items()}

    def watch(self, scores: Raw, rows: int, k: int, order: Order) -> Watched:
        """What is sampled of a row, one of so many that a launch has, and what follows from it."""
        memory = np.empty(len(scores) + 64, bits_of(scores).dtype)
        first = -memory.ctypes.data % 16 // memory.itemsize
        memory[first : first + len(scores)] = bits_of(scores)
        sample = np.full((_MOST_BLOCKS, THREADS, 16), np.nan, np.float32)
        maxima = np.full((_MOST_BLOCKS, MOST_GROUPS), np.nan, np.float32)
        anchors = np.full((_MOST_BLOCKS, 3), np.nan, np.float32)
        plan = np.zeros(len(fields(SamplePlan)), np.uint8)
        blocks = self.library.emulated_sample(
            *(_pointer(memory[first:]), rows, len(scores), k, ORDERS.index(order)),
            *map(_pointer, (sample, maxima, anchors, plan)),
        )
        assert blocks > 0, "one block counts the whole row"
        seen = SamplePlan(*plan[:-1].tolist(), bool(plan[-1]))
        return Watched(sample[:blocks], maxima[:blocks], anchors[:blocks], seen)

    def mask(self, length: int, misaligned: int, vector: int) -> NDArray[np.bool_]:
        """Which elements of a vector are made NaN, as behind the end of a row."""
        words = np.zeros(4, np.uint32)
        self.library.emulated_mask(length, misaligned, vector, _pointer(words))
        bits = words.view(PATTERN[self.dtype])
        ones = ~bits.dtype.type(0)
        assert np.isin(bits, (0, ones)).all()
        return bits == ones


def _pointer(array: NDArray[Any] | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)
