"""The project's table of targets, and the sizes that tables speak in."""

from __future__ import annotations

__all__ = ["HOSTILE_FACTOR", "TARGETS", "K", "M"]

K = 2**10
M = 2**20

#: Microseconds on an H200 by rows and length: k = 2048, float32, data not in L2.
TARGETS: dict[int, dict[int, float]] = {
    1: {4 * K: 2.8, 16 * K: 3.6, 64 * K: 4.5, 128 * K: 5, 256 * K: 5.5, 512 * K: 6, M: 7},
    4: {16 * K: 4, 64 * K: 5, 256 * K: 7, M: 12},
    16: {16 * K: 5, 64 * K: 6.5, 256 * K: 10},
    64: {16 * K: 6, 64 * K: 9, 128 * K: 14, 256 * K: 22},
}

#: How many times its cell's target a distribution that breaks other kernels may take.
HOSTILE_FACTOR = 3
