"""The TileLang program that scores keys: all multiprocessors share all groups of queries evenly.

A group is the queries that see the same keys: those of a sequence, on pages, or a few rows that see
about the same stretch of keys in a row. Tiles of keys are numbered through all groups; each block
takes an equal, contiguous range of them. One warp brings keys by TMA, pages in the order of the
block table, into a ring of stages; the others multiply (wgmma), apply ReLU and weights, sum over
heads in registers and write each score once. The ring runs on from group to group, so a ragged
batch costs no more than its keys.

A *fused* program also passes on, row by row, what can still be among the k best: the device
functions of ``indexer_filter.cuh`` guess a floor, in a warp of their own, and drop what is below.

The roles are written out rather than left to ``T.Pipelined``: TileLang 0.1.15 drops the pipelining
where a tile has several copies in a loop, and resets variables that such a loop's extent reads.
"""

# No `from __future__ import annotations`: TileLang evaluates annotations, which use local names.
# mypy: disable-error-code="index, no-untyped-def, untyped-decorator, valid-type"
from typing import Any

import tilelang.language as T  # noqa: N812 (as everywhere)

from tl_topk.indexer.shapes import (
    DIM,
    KEPT_TILES,
    PAGE,
    PAGE_BYTES,
    SCALE_BYTES,
    STATE_WORDS,
    WARP,
    ScoreShape,
)

__all__ = ["score_program"]

_FILTER = "tl_topk::indexer::"
_CONSUMERS = 3  # the barrier among the threads that multiply


def score_program(shape: ScoreShape) -> Any:
    """A ``prim_func``; its arguments are explained in :mod:`tl_topk.indexer.score_host`."""
    paged, fused = shape.paged, shape.fused
    heads, queries, ratio = shape.heads, shape.queries, shape.compress_ratio
    columns, tile, stages, consumers = shape.columns, shape.tile, shape.stages, shape.consumers
    tile_pages = tile // PAGE
    groups, rows = T.dynamic("groups"), T.dynamic("rows")
    pages, table_width, width = T.dynamic("pages"), T.dynamic("table_width"), T.dynamic("width")
    exchange_bytes = T.dynamic("exchange_bytes")
    key_type = T.float8_e4m3fn if shape.float8 else T.bfloat16
    panel = 128 if shape.float8 else 64  # columns that lie together in a swizzled tile: 128 bytes
    lens_columns = queries if shape.lens_per_query else 1
    page_stride = PAGE_BYTES if shape.float8 else PAGE * DIM
    if paged:
        key_tensor = T.StridedTensor((pages, PAGE, DIM), (page_stride, DIM, 1), key_type)
        scale_tensor = T.StridedTensor((pages, PAGE), (PAGE_BYTES // SCALE_BYTES, 1), T.float32)
    else:
        key_tensor = T.Tensor((width, DIM), key_type)
        scale_tensor = T.Tensor((width,), T.float32)
    weight_scope = T.alloc_fragment if shape.weights_in_registers else T.alloc_shared
    sift = f"{_FILTER}sift<{tile}, {queries}, {KEPT_TILES}>"
    conclude = f"{_FILTER}conclude<{tile}, {queries}>"
    guess = f"{_FILTER}guess<{tile}, {queries}>"

    @T.macro
    def start_of(starts: Any, group: Any, query: Any) -> Any:
        """The first key that a row sees."""
        return 0 if paged else starts[T.min(group * queries + query, rows - 1)]

    @T.macro
    def length_of(lens: Any, lengths: Any, group: Any, query: Any) -> Any:
        """How many keys a row sees."""
        if not paged:
            row = group * queries + query
            length = T.if_then_else(row < rows, lengths[T.min(row, rows - 1)], 0)
        else:
            if shape.lens_per_query:
                tokens = lens[group, query]
            else:
                tokens = lens[group, 0] - (queries - 1) + query
            length = T.min(T.truncdiv(T.max(tokens, 0), ratio), table_width * PAGE)
        return length

    @T.macro
    def origin_of(starts: Any, lens: Any, lengths: Any, group: Any) -> Any:
        """The first key that any row of a group sees."""
        origin = T.alloc_var(T.int32, init=0)
        if not paged:
            origin = width
            for query in T.serial(queries):
                if length_of(lens, lengths, group, query) > 0:
                    origin = T.min(origin, start_of(starts, group, query))
        return origin

    @T.macro
    def extent_of(starts: Any, lens: Any, lengths: Any, group: Any, origin: Any) -> Any:
        """How many keys from there on the rows of a group see."""
        extent = T.alloc_var(T.int32, init=0)
        if paged and not shape.lens_per_query:
            extent = length_of(lens, lengths, group, queries - 1)
        else:
            for query in T.serial(queries):
                length = length_of(lens, lengths, group, query)
                if length > 0:
                    extent = T.max(extent, start_of(starts, group, query) - origin + length)
        return extent

    @T.prim_func
    def score(
        q: T.Tensor((rows * heads, DIM), key_type),
        keys: key_tensor,
        scales: scale_tensor,
        weights: T.Tensor((rows * heads,), T.float32),
        table: T.Tensor((groups, table_width), T.int32),
        lens: T.Tensor((groups, lens_columns), T.int32),
        starts: T.Tensor((rows,), T.int32),
        lengths: T.Tensor((rows,), T.int32),
        scores: T.Tensor((rows, width), T.float32),
        exchange: T.Tensor((exchange_bytes,), T.uint8),
        capacity: T.int32,
        nonce: T.int32,
        k: T.int32,
        grid: T.int32,
    ):
        with T.Kernel(grid, threads=shape.threads) as block:
            if fused:
                T.import_source('#include "cuda/indexer_filter.cuh"\n')
            query_tile = T.alloc_shared((columns, DIM), key_type)
            key_ring = T.alloc_shared((stages, tile, DIM), key_type)
            scale_ring = T.alloc_shared((stages, tile), T.float32)
            # Every lane of the loading warp arrives, so that none can do so ahead of the one that
            # announced the bytes; of the others one lane a warp.
            full = T.alloc_barrier([WARP] * stages)
            empty = T.alloc_barrier([consumers // WARP] * stages)
            query_full = T.alloc_barrier(WARP)
            query_empty = T.alloc_barrier(consumers // WARP)
            products = T.alloc_fragment((tile, columns), T.float32)
            products_by_query = T.reshape(products, (tile, queries, heads))
            sums = T.alloc_fragment((tile, queries), T.float32)
            weight = weight_scope((columns,), T.float32)
            page = T.alloc_fragment((tile,), T.int32)
            scale = T.alloc_fragment((tile,), T.float32)
            kept = T.alloc_shared((KEPT_TILES + 1, queries, tile), T.float32)
            state = T.alloc_shared((STATE_WORDS,), T.int32)

            thread = T.get_thread_binding()
            total = T.alloc_var(T.int32, init=0)  # tiles of all groups
            before = T.alloc_var(T.int32, init=0)  # tiles of the groups before this one
            turn = T.alloc_var(T.int32, init=0)  # tiles done by this block
            visits = T.alloc_var(T.int32, init=0)  # groups begun by this block
            numbers = T.alloc_var(T.int32, init=0)  # of the next pages, one a lane
            sources = T.alloc_local((tile_pages,), T.int32)  # the pages of a tile
            if fused:
                T.call_extern("handle", f"{_FILTER}allow_next_kernel")
                if thread < STATE_WORDS:
                    state[thread] = 0
                T.sync_threads()
            for g in T.serial(groups):
                origin = origin_of(starts, lens, lengths, g)
                total += T.ceildiv(extent_of(starts, lens, lengths, g, origin), tile)
            share, longer = T.truncdiv(total, grid), T.truncmod(total, grid)
            first = block * share + T.min(block, longer)
            last = (block + 1) * share + T.min(block + 1, longer)

            if thread >= consumers + WARP:
                for g in T.serial(groups):
                    extent = extent_of(starts, lens, lengths, g, 0)
                    tiles = T.ceildiv(extent, tile)
                    if T.max(first - before, 0) < T.min(last - before, tiles):
                        T.call_extern(
                            "handle", guess, T.address_of(state[0]), T.address_of(exchange[0]),
                            grid, groups, capacity, nonce, block, g, visits,
                            before, tiles, total, extent, k,
                        )  # fmt: skip
                        visits += 1
                    before += tiles
            elif thread >= consumers:
                for g in T.serial(groups):
                    origin = origin_of(starts, lens, lengths, g)
                    extent = extent_of(starts, lens, lengths, g, origin)
                    tiles = T.ceildiv(extent, tile)
                    begin, end = T.max(first - before, 0), T.min(last - before, tiles)
                    if begin < end:
                        T.mbarrier_wait_parity(query_empty, (visits & 1) ^ 1)
                        T.tma_copy(
                            q[g * columns : (g + 1) * columns, 0:DIM],
                            query_tile,
                            barrier=query_full,
                            leader_scope_threads=WARP,
                        )
                        T.mbarrier_arrive(query_full)
                        visits += 1
                        for t in T.serial(begin, end):
                            # A page number takes as long to come as a tile: each lane brings one.
                            at = T.bitwise_and(t - begin, WARP // tile_pages - 1) * tile_pages
                            if paged and at == 0:
                                number = t * tile_pages + thread - consumers
                                # TMA fills pages that are not there with zeros.
                                numbers = T.if_then_else(
                                    number * PAGE < extent, table[g, number], -1
                                )
                            stage = T.truncmod(turn, stages)
                            T.mbarrier_wait_parity(empty[stage], (T.truncdiv(turn, stages) & 1) ^ 1)
                            if paged:
                                # Apart from the copies, which one lane alone makes: all take part.
                                for j in T.unroll(tile_pages):
                                    sources[j] = T.shfl_sync(numbers, at + j)
                                for j in T.unroll(tile_pages):
                                    for c in T.unroll(DIM // panel):
                                        T.tma_copy(
                                            keys[sources[j], 0:PAGE, c * panel : (c + 1) * panel],
                                            key_ring[
                                                stage,
                                                j * PAGE : (j + 1) * PAGE,
                                                c * panel : (c + 1) * panel,
                                            ],
                                            barrier=full[stage],
                                            leader_scope_threads=WARP,
                                        )
                                    if shape.float8:
                                        T.tma_copy(
                                            scales[sources[j], 0:PAGE],
                                            scale_ring[stage, j * PAGE : (j + 1) * PAGE],
                                            barrier=full[stage],
                                            leader_scope_threads=WARP,
                                        )
                            else:
                                key = origin + t * tile
                                for c in T.unroll(DIM // panel):
                                    T.tma_copy(
                                        keys[key : key + tile, c * panel : (c + 1) * panel],
                                        key_ring[stage, 0:tile, c * panel : (c + 1) * panel],
                                        barrier=full[stage],
                                        leader_scope_threads=WARP,
                                    )
                            T.mbarrier_arrive(full[stage])
                            turn += 1
                    before += tiles
            else:
                if paged and not shape.lens_are_lengths and block == 0:
                    for g in T.serial(groups):
                        for query in T.serial(queries):
                            if thread == 0:
                                lengths[g * queries + query] = length_of(lens, lengths, g, query)
                for g in T.serial(groups):
                    origin = origin_of(starts, lens, lengths, g)
                    extent = extent_of(starts, lens, lengths, g, origin)
                    tiles = T.ceildiv(extent, tile)
                    begin, end = T.max(first - before, 0), T.min(last - before, tiles)
                    if begin < end:
                        if not shape.weights_in_registers:
                            T.sync_threads(_CONSUMERS, consumers)  # the ones before have been read
                        T.copy(weights[g * columns : (g + 1) * columns], weight)
                        if not shape.weights_in_registers:
                            T.sync_threads(_CONSUMERS, consumers)
                        T.mbarrier_wait_parity(query_full, visits & 1)
                        for t in T.serial(begin, end):
                            stage = T.truncmod(turn, stages)
                            # These are on their way while the keys are awaited.
                            if paged:
                                for i in T.Parallel(tile):
                                    page[i] = table[g, t * tile_pages + i // PAGE]
                            elif shape.float8:
                                for i in T.Parallel(tile):
                                    scale[i] = scales[origin + t * tile + i]
                            T.mbarrier_wait_parity(full[stage], T.truncdiv(turn, stages) & 1)
                            T.gemm(
                                key_ring[stage, :, :],
                                query_tile,
                                products,
                                transpose_B=True,
                                clear_accum=True,
                                policy=T.GemmWarpPolicy.FullRow,
                            )
                            for i, j in T.Parallel(tile, columns):
                                products[i, j] = T.max(products[i, j], 0) * weight[j]
                            T.reduce_sum(products_by_query, sums, dim=2)
                            if paged and shape.float8:
                                for i, n in T.Parallel(tile, queries):
                                    sums[i, n] *= scale_ring[stage, i]
                            elif shape.float8:
                                for i, n in T.Parallel(tile, queries):
                                    sums[i, n] *= scale[i]
                            T.sync_warp()
                            if thread % WARP == 0:
                                T.mbarrier_arrive(empty[stage])
                            if paged:
                                for i, n in T.Parallel(tile, queries):
                                    seen = t * tile + i < length_of(lens, lengths, g, n)
                                    there = page[i] >= 0 and page[i] < pages
                                    sums[i, n] = T.if_then_else(
                                        seen and there, sums[i, n], -T.infinity(T.float32)
                                    )
                                for i, n in T.Parallel(tile, queries):
                                    scores[g * queries + n, t * tile + i] = sums[i, n]
                            else:
                                for i, n in T.Parallel(tile, queries):
                                    key = origin + t * tile + i
                                    past = key - start_of(starts, g, n)
                                    length = length_of(lens, lengths, g, n)
                                    if past >= 0 and past < length:
                                        scores[g * queries + n, key] = sums[i, n]
                            if fused:
                                for i, n in T.Parallel(tile, queries):
                                    kept[T.min(t - begin, KEPT_TILES), n, i] = sums[i, n]
                                T.call_extern(
                                    "handle", sift, T.address_of(kept[0, 0, 0]),
                                    T.address_of(state[0]), T.address_of(exchange[0]),
                                    grid, groups, capacity, nonce, block, g, visits,
                                    end - begin, t - begin, t,
                                )  # fmt: skip
                            turn += 1
                        if fused:
                            T.call_extern(
                                "handle", conclude, T.address_of(state[0]),
                                T.address_of(exchange[0]), grid, groups, capacity, block, g,
                                visits, end - begin, begin == 0, end == tiles,
                            )  # fmt: skip
                        visits += 1
                        T.sync_warp()
                        if thread % WARP == 0:
                            T.mbarrier_arrive(query_empty)
                    before += tiles

    return score
