"""The TileLang program that scores keys: all multiprocessors share all groups of queries evenly.

A group is the queries that see the same keys: those of a sequence, on pages, or a few rows that see
about the same stretch of keys in a row. Tiles of keys are numbered through all groups; each block
takes an equal, contiguous range of them, or of one sequence alone every tile in turn. One warp
brings keys by TMA, pages in the order of the block table, into a ring of stages; the others
multiply (wgmma), apply ReLU and weights and sum over heads in registers (``indexer_scores.cuh``:
the order of the sums is fixed there), and write each score once. The ring runs on from group to
group, so a ragged batch costs no more than its keys.

The start decides how long few keys take: what does not depend on the lengths is asked for before
they are known, and little code lies between them and the first keys.

A *fused* program also selects: the device functions of ``indexer_filter.cuh`` guess a floor for
every row, in warps of their own, and drop what is below; those of ``indexer_tail.cuh`` select from
the rest, in the block that has the row's last tile.

The roles are written out rather than left to ``T.Pipelined``: TileLang 0.1.15 drops the pipelining
where a tile has several copies in a loop, and resets variables that such a loop's extent reads.
"""

# No `from __future__ import annotations`: TileLang evaluates annotations, which use local names.
# mypy: disable-error-code="index, no-untyped-def, untyped-decorator, valid-type"
from typing import Any

import tilelang.language as T  # noqa: N812 (as everywhere)

from tl_topk.indexer.shapes import (
    DIM,
    PAGE,
    PAGE_BYTES,
    REHEARSAL_WORDS,
    SCALE_BYTES,
    STATE_WORDS,
    WARP,
    ScoreShape,
)

__all__ = ["score_program"]

_NATIVE = "tl_topk::indexer::"
_CONSUMERS = 3  # the barrier among the threads that multiply


def score_program(shape: ScoreShape) -> Any:
    """A ``prim_func``; its arguments are explained in :mod:`tl_topk.indexer.score_host`."""
    paged, fused, float8 = shape.paged, shape.fused, shape.float8
    heads, queries, ratio = shape.heads, shape.queries, shape.compress_ratio
    columns, tile, stages, consumers = shape.columns, shape.tile, shape.stages, shape.consumers
    tile_pages, dealt = tile // PAGE, shape.dealt
    at_once = WARP // tile_pages  # tiles whose page numbers a warp brings at once
    asks_early = paged and not fused and shape.weights_in_registers
    groups, rows = T.dynamic("groups"), T.dynamic("rows")
    pages, table_width, width = T.dynamic("pages"), T.dynamic("table_width"), T.dynamic("width")
    exchange_bytes, slots = T.dynamic("exchange_bytes"), T.dynamic("slots")
    key_type = T.float8_e4m3fn if float8 else T.bfloat16
    panel = 128 if float8 else 64  # columns that lie together in a swizzled tile: 128 bytes
    lens_columns = queries if shape.lens_per_query else 1
    page_stride = PAGE_BYTES if float8 else PAGE * DIM
    if paged:
        key_tensor = T.StridedTensor((pages, PAGE, DIM), (page_stride, DIM, 1), key_type)
        scale_tensor = T.StridedTensor((pages, PAGE), (PAGE_BYTES // SCALE_BYTES, 1), T.float32)
    else:
        key_tensor = T.Tensor((width, DIM), key_type)
        scale_tensor = T.Tensor((width,), T.float32)
    in_registers = shape.weights_in_registers
    each = "true" if shape.lens_per_query else "false"
    goes_round = "false" if fused else "true"
    on_pages = f"{_NATIVE}work_on_pages<{tile}, {queries}, {ratio}, {each}, {goes_round}>"
    in_row = f"{_NATIVE}work_in_row<{tile}, {queries}>"
    first_pages = f"{_NATIVE}guess_pages<{tile}, {goes_round}>"
    page_of_lane = f"{_NATIVE}page_of_lane<{tile}>"
    next_tile = f"{_NATIVE}next_tile"
    load_weights = f"{_NATIVE}load_weights<{columns}>"
    keys_on_pages = f"{_NATIVE}keys_on_pages<{queries}, {ratio}, {each}>"
    row_length = f"{_NATIVE}row_length<{queries}, {ratio}, {each}>"
    moment = f"{_NATIVE}mark_moment"
    weigh = f"{_NATIVE}weigh<{queries}, {heads}, {'true' if in_registers else 'false'}>"
    put = f"{_NATIVE}put_score"
    sift = f"{_NATIVE}sift<{tile}, {queries}, {shape.kept_tiles}>"
    guess = f"{_NATIVE}guess<{tile}, {queries}>"
    rehearse = f"{_NATIVE}rehearse<{shape.list_entries}>"
    fill_empty = f"{_NATIVE}fill_empty<{queries}, {ratio}, {each}>"
    conclude = (
        f"{_NATIVE}conclude<{tile}, {queries}, {shape.tail_teams}, {shape.list_entries}, {ratio},"
        f" {each}>"
    )

    def query_of(v: int, thread: Any) -> Any:
        """The query of a thread's v-th dealt sum."""
        return T.truncmod(4 * v + T.bitwise_and(thread, 3), queries)

    def row_of(v: int, thread: Any) -> Any:
        """The place in a tile of its key."""
        row = T.truncdiv(thread, WARP) * 16 + T.truncdiv(T.bitwise_and(thread, WARP - 1), 4)
        second = T.truncdiv(4 * v + T.bitwise_and(thread, 3), queries)
        return row + T.bitwise_and(second, 1) * 8

    @T.macro
    def length_of(lens: Any, lengths: Any, group: Any, query: Any) -> Any:
        """How many keys a row sees."""
        if paged:
            length = T.call_extern(
                "int32", row_length, T.address_of(lens[0, 0]), group, query, table_width
            )
        else:
            row = group * queries + query
            length = T.if_then_else(row < rows, lengths[T.min(row, rows - 1)], 0)
        return length

    @T.macro
    def origin_of(starts: Any, lens: Any, lengths: Any, group: Any) -> Any:
        """The first key that any row of a group sees."""
        origin = T.alloc_var(T.int32, init=0)
        if not paged:
            origin = width
            for query in T.serial(queries):
                if length_of(lens, lengths, group, query) > 0:
                    origin = T.min(origin, starts[T.min(group * queries + query, rows - 1)])
        return origin

    @T.macro
    def extent_of(starts: Any, lens: Any, lengths: Any, group: Any, origin: Any) -> Any:
        """How many keys from there on the rows of a group see."""
        extent = T.alloc_var(T.int32, init=0)
        if paged:
            extent = T.call_extern(
                "int32", keys_on_pages, T.address_of(lens[0, 0]), group, table_width
            )
        else:
            for query in T.serial(queries):
                length = length_of(lens, lengths, group, query)
                if length > 0:
                    start = starts[T.min(group * queries + query, rows - 1)]
                    extent = T.max(extent, start - origin + length)
        return extent

    @T.macro
    def ask_query(q: Any, query_tile: Any, query_full: Any, group: Any) -> None:
        """Brings the queries of a group; called by a whole warp."""
        T.tma_copy(
            q[group * columns : (group + 1) * columns, 0:DIM],
            query_tile,
            barrier=query_full,
            leader_scope_threads=WARP,
        )
        T.mbarrier_arrive(query_full)

    @T.macro
    def weights_of(weights: Any, weight: Any, group: Any) -> None:
        T.call_extern(
            "handle", load_weights, T.address_of(weights[group * columns]), T.address_of(weight[0])
        )

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
        indices: T.Tensor((slots,), T.int32),
        offsets: T.Tensor((rows,), T.int32),
        capacity: T.int32,
        nonce: T.int32,
        k: T.int32,
        result_kind: T.int32,
        grid: T.int32,
    ):
        with T.Kernel(grid, threads=shape.threads) as block:
            header = "indexer_tail" if fused else "indexer_scores"
            T.import_source(f'#include "cuda/{header}.cuh"\n')
            T.annotate_min_blocks_per_sm(shape.blocks_per_multiprocessor)
            query_tile = T.alloc_shared((columns, DIM), key_type)
            key_ring = T.alloc_shared((stages, tile, DIM), key_type)
            scale_ring = T.alloc_shared((stages, tile), T.float32)
            page_ring = T.alloc_shared((stages, tile_pages), T.int32)
            # Every lane of the loading warp arrives, so that none can do so ahead of the one that
            # announced the bytes; of the others one lane a warp.
            full = T.alloc_barrier([WARP] * stages)
            empty = T.alloc_barrier([consumers // WARP] * stages)
            query_full = T.alloc_barrier(WARP)
            query_empty = T.alloc_barrier(consumers // WARP)
            products = T.alloc_fragment((tile, columns), T.float32)
            # Of them a thread's share, as the tensor core deals them.
            mine = T.alloc_local((columns // 2,), T.float32)
            weight = T.alloc_local((columns // 4,), T.float32)
            all_weights = T.alloc_shared((columns,), T.float32)
            kept = T.alloc_shared((shape.kept_tiles * dealt * consumers,), T.float32)
            state = T.alloc_shared((STATE_WORDS,), T.int32)
            tails = T.alloc_shared((shape.tail_words,), T.int32)
            rehearsal = T.alloc_shared((REHEARSAL_WORDS,), T.int32)

            thread = T.get_thread_binding()
            work = T.alloc_local((8,), T.int32)  # Work of indexer_scores.cuh
            guessed = T.alloc_local((3,), T.int32)  # group, tile, page
            sources = T.alloc_local((tile_pages,), T.int32)  # the pages of a tile
            # Of a thread's sums: what their rows see, and the scales of their keys.
            sums = T.alloc_local((dealt,), T.float32)
            memo = T.alloc_local((dealt + 1,), T.float32)
            ends = T.alloc_local((dealt,), T.int32)
            begins = T.alloc_local((dealt,), T.int32)
            scale = T.alloc_local((dealt,), T.float32)
            next_scale = T.alloc_local((dealt,), T.float32)  # of keys in a row
            before = T.alloc_var(T.int32, init=0)  # tiles of the groups before this one
            stage = T.alloc_var(T.int32, init=0)
            phase = T.alloc_var(T.int32, init=0)  # how often the ring has gone round, modulo 2
            visits = T.alloc_var(T.int32, init=0)  # groups begun by this block
            numbers = T.alloc_var(T.int32, init=0)  # of the next pages, one a lane
            following = T.alloc_var(T.int32, init=0)
            page = T.alloc_var(T.int32, init=0)
            keys_seen = T.alloc_var(T.int32, init=0)  # of a group
            t = T.alloc_var(T.int32, init=0)  # a tile of the group
            turn = T.alloc_var(T.int32, init=0)  # how many of its tiles came before
            if fused:
                if thread < STATE_WORDS:
                    state[thread] = 0
                T.sync_threads()
            T.call_extern("handle", f"{moment}<0>")
            # What does not depend on the lengths is asked for before they are.
            if paged:
                if thread >= consumers:
                    T.call_extern(
                        "handle", first_pages, T.address_of(table[0, 0]), groups, table_width,
                        block, grid, T.address_of(guessed[0]),
                    )  # fmt: skip
                elif asks_early and groups == 1:
                    weights_of(weights, weight, 0)
                    if thread < WARP:
                        ask_query(q, query_tile, query_full, 0)
                T.call_extern(
                    "handle", on_pages, T.address_of(lens[0, 0]), groups, table_width, block,
                    grid, T.address_of(work[0]),
                )  # fmt: skip
            else:
                T.call_extern(
                    "handle", in_row, T.address_of(starts[0]), T.address_of(lengths[0]), groups,
                    rows, width, block, grid, T.address_of(work[0]),
                )  # fmt: skip
            before = work[5]
            keys_seen = work[7]
            T.call_extern("handle", f"{moment}<1>")
            if not fused:
                T.call_extern("handle", f"{_NATIVE}allow_next_kernel")

            if fused and thread >= shape.threads - WARP:
                if work[1] < work[2] and (groups > 1 or work[2] == work[0]):
                    T.call_extern("handle", rehearse, T.address_of(rehearsal[0]))
            elif fused and thread >= consumers + WARP:
                for g in T.serial(work[3], work[4]):
                    extent = extent_of(starts, lens, lengths, g, 0)
                    tiles = T.ceildiv(extent, tile)
                    if T.max(work[1] - before, 0) < T.min(work[2] - before, tiles):
                        for part in T.serial(T.ceildiv(queries, shape.guessers)):
                            guesser = T.truncdiv(thread - consumers - WARP, WARP)
                            asked = part * shape.guessers + guesser
                            if asked < queries:
                                T.call_extern(
                                    "handle", guess, T.address_of(state[0]),
                                    T.address_of(exchange[0]), grid, groups, capacity, nonce,
                                    block, g, visits, asked, before, tiles, work[0],
                                    length_of(lens, lengths, g, asked), k,
                                )  # fmt: skip
                        visits += 1
                    before += tiles
            elif thread >= consumers:
                for g in T.serial(work[3], work[4]):
                    origin = origin_of(starts, lens, lengths, g)
                    if not paged or g > work[3]:
                        keys_seen = extent_of(starts, lens, lengths, g, origin)
                    tiles = T.ceildiv(keys_seen, tile)
                    t = T.max(work[1] - before, 0)
                    end = T.min(work[2] - before, tiles)
                    if t < end:
                        if not (asks_early and groups == 1):
                            T.mbarrier_wait_parity(query_empty, (visits & 1) ^ 1)
                            ask_query(q, query_tile, query_full, g)
                        visits += 1
                        turn = 0
                        while t < end:
                            # A page number takes longer to come than a tile: each lane brings one,
                            # and those of the next round are on their way during this one.
                            step_of_round = T.bitwise_and(turn, at_once - 1)
                            if paged and step_of_round == 0:
                                if turn > 0:
                                    numbers = following
                                elif g == guessed[0] and t == guessed[1]:
                                    numbers = guessed[2]
                                else:
                                    numbers = T.call_extern(
                                        "int32", page_of_lane, T.address_of(table[0, 0]),
                                        table_width, g, t, work[6],
                                        T.ceildiv(keys_seen, PAGE),
                                    )  # fmt: skip
                            # Not before the ring is full: fences ahead of copies wait for loads.
                            if paged and step_of_round == stages:
                                following = T.call_extern(
                                    "int32", page_of_lane, T.address_of(table[0, 0]), table_width,
                                    g, t + (at_once - stages) * work[6], work[6],
                                    T.ceildiv(keys_seen, PAGE),
                                )  # fmt: skip
                            T.mbarrier_wait_parity(empty[stage], phase ^ 1)
                            if paged:
                                # Apart from the copies, which one lane alone makes: all take part.
                                for j in T.unroll(tile_pages):
                                    sources[j] = T.shfl_sync(
                                        numbers, step_of_round * tile_pages + j
                                    )
                                    page_ring[stage, j] = sources[j]
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
                                            eviction_policy="evict_first",
                                        )
                                    if float8:
                                        T.tma_copy(
                                            scales[sources[j], 0:PAGE],
                                            scale_ring[stage, j * PAGE : (j + 1) * PAGE],
                                            barrier=full[stage],
                                            leader_scope_threads=WARP,
                                            eviction_policy="evict_first",
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
                            stage += 1
                            if stage == stages:
                                stage = 0
                                phase ^= 1
                            turn += 1
                            t = T.call_extern("int32", next_tile, t, work[6])
                    before += tiles
                if asks_early and groups == 1 and visits == 0:
                    T.mbarrier_wait_parity(
                        query_full, 0
                    )  # nothing may arrive in a block that ended
            else:
                if paged and not fused and not shape.lens_are_lengths and block == 0:
                    for g in T.serial(groups):
                        for query in T.serial(queries):
                            if thread == 0:
                                lengths[g * queries + query] = length_of(lens, lengths, g, query)
                for g in T.serial(work[3], work[4]):
                    origin = origin_of(starts, lens, lengths, g)
                    if not paged or g > work[3]:
                        keys_seen = extent_of(starts, lens, lengths, g, origin)
                    tiles = T.ceildiv(keys_seen, tile)
                    begin, end = T.max(work[1] - before, 0), T.min(work[2] - before, tiles)
                    if begin < end:
                        if paged and in_registers:
                            if not (asks_early and groups == 1):
                                weights_of(weights, weight, g)
                        elif in_registers:
                            for j in T.unroll(columns // 8):
                                for c in T.unroll(2):
                                    column = g * columns + j * 8 + T.bitwise_and(thread, 3) * 2 + c
                                    weight[2 * j + c] = weights[T.min(column, rows * heads - 1)]
                        else:
                            T.sync_threads(_CONSUMERS, consumers)  # the ones before have been read
                            for c in T.serial(T.ceildiv(columns, consumers)):
                                at = T.min(c * consumers + thread, columns - 1)
                                all_weights[at] = weights[T.min(g * columns + at, rows * heads - 1)]
                            T.sync_threads(_CONSUMERS, consumers)
                        for v in T.unroll(dealt):
                            ends[v] = length_of(lens, lengths, g, query_of(v, thread))
                            if not paged:
                                row_number = g * queries + query_of(v, thread)
                                begins[v] = starts[T.min(row_number, rows - 1)]
                        if not paged and float8:
                            for v in T.unroll(dealt):
                                scaled = origin + begin * tile + row_of(v, thread)
                                next_scale[v] = scales[T.min(scaled, width - 1)]
                        T.mbarrier_wait_parity(query_full, visits & 1)
                        t = begin
                        while t < end:
                            if not paged and float8:  # they are long on their way
                                for v in T.unroll(dealt):
                                    scale[v] = next_scale[v]
                                    scaled = origin + (t + 1) * tile + row_of(v, thread)
                                    next_scale[v] = scales[T.min(scaled, width - 1)]
                            T.mbarrier_wait_parity(full[stage], phase)
                            if t == begin:
                                T.call_extern("handle", f"{moment}<2>")
                            T.gemm(
                                key_ring[stage, :, :],
                                query_tile,
                                products,
                                transpose_B=True,
                                clear_accum=True,
                                policy=T.GemmWarpPolicy.FullRow,
                            )
                            if paged:
                                page = page_ring[stage, T.truncdiv(thread, 2 * PAGE)]
                            if paged and float8:
                                for v in T.unroll(dealt):
                                    scale[v] = scale_ring[stage, row_of(v, thread)]
                            T.sync_warp()
                            if thread % WARP == 0:
                                T.mbarrier_arrive(empty[stage])
                            stage += 1
                            if stage == stages:
                                stage = 0
                                phase ^= 1
                            for i, j in T.Parallel(tile, columns):
                                T.call_extern(
                                    "handle", f"{_NATIVE}keep", T.address_of(mine[0]),
                                    j // 8 * 4 + i % 16 // 8 * 2 + j % 2, products[i, j],
                                )  # fmt: skip
                            T.call_extern(
                                "handle", weigh, T.address_of(mine[0]),
                                T.address_of(weight[0] if in_registers else all_weights[0]),
                                T.address_of(sums[0]),
                            )  # fmt: skip
                            for v in T.unroll(dealt):
                                value = T.alloc_var(T.float32, init=0)
                                row = row_of(v, thread)
                                owned = 4 * v + T.bitwise_and(thread, 3) < 2 * queries
                                query_row = g * queries + query_of(v, thread)
                                value = sums[v]
                                if float8:
                                    value *= scale[v]
                                if paged:
                                    seen = t * tile + row < ends[v]
                                    there = page >= 0 and page < pages
                                    if not (seen and there):
                                        value = -T.infinity(T.float32)
                                    if owned and t * tile + row < width:
                                        T.call_extern(
                                            "handle", put, T.address_of(scores[0, 0]), query_row,
                                            width, t * tile + row, value,
                                        )  # fmt: skip
                                    sums[v] = value
                                else:
                                    position = origin + t * tile + row
                                    past = position - begins[v]
                                    if owned and past >= 0 and past < ends[v]:
                                        T.call_extern(
                                            "handle", put, T.address_of(scores[0, 0]), query_row,
                                            width, position, value,
                                        )  # fmt: skip
                            if fused:
                                T.call_extern(
                                    "handle", sift, T.address_of(sums[0]),
                                    T.address_of(kept[0]), T.address_of(memo[0]),
                                    T.address_of(state[0]), T.address_of(exchange[0]),
                                    grid, groups, capacity, nonce, block, g, visits,
                                    end - begin, work[0], t - begin, t,
                                )  # fmt: skip
                            else:
                                if t == begin:
                                    T.call_extern("handle", f"{moment}<3>")
                                T.call_extern("handle", f"{moment}<4>")
                            t = T.call_extern("int32", next_tile, t, work[6])
                        if fused:
                            T.call_extern(
                                "handle", conclude, T.address_of(state[0]),
                                T.address_of(tails[0]), T.address_of(exchange[0]), grid, groups,
                                capacity, nonce, block, g, visits, end - begin, work[0], before,
                                end == tiles, T.address_of(lens[0, 0]),
                                T.address_of(scores[0, 0]), T.address_of(indices[0]),
                                T.address_of(table[0, 0]), T.address_of(offsets[0]), width, pages,
                                k, result_kind,
                            )  # fmt: skip
                        visits += 1
                        T.sync_warp()
                        if thread % WARP == 0:
                            T.mbarrier_arrive(query_empty)
                    before += tiles
                if fused:
                    T.call_extern(
                        "handle", fill_empty, T.address_of(lens[0, 0]), groups, table_width, block,
                        grid, consumers, T.address_of(indices[0]), k,
                    )  # fmt: skip

    return score
