"""Scores and selection in one launch: each query's best keys by dot product, in TileLang.

A block computes its query's scores into shared memory, tile by tile, and selects from them in
place: the scores never reach global memory.
"""

import tilelang.language as T  # noqa: N812

from tl_topk import lang as tk

DIM, KEYS, K, TILE, THREADS = 64, 4096, 512, 128, 256


def program():
    queries = T.dynamic("queries")

    @T.prim_func
    def score_and_select(
        query: T.Tensor((queries, DIM), "float16"),
        keys: T.Tensor((KEYS, DIM), "float16"),
        lengths: T.Tensor((queries,), "int32"),
        best: T.Tensor((queries, K), "int32"),
    ):
        with T.Kernel(queries, threads=THREADS) as row:
            tile = T.alloc_shared((TILE, DIM), "float16")
            mine = T.alloc_shared((DIM,), "float16")
            scores = T.alloc_shared((KEYS,), "float32")
            chosen = T.alloc_shared((K,), "int32")
            products = T.alloc_fragment((TILE, DIM), "float32")
            sums = T.alloc_fragment((TILE,), "float32")
            T.copy(query[row, 0], mine)
            for step in T.Pipelined(KEYS // TILE, num_stages=2):
                T.copy(keys[step * TILE, 0], tile)
                for i, j in T.Parallel(TILE, DIM):
                    products[i, j] = T.cast(tile[i, j], "float32") * T.cast(mine[j], "float32")
                T.reduce_sum(products, sums, dim=1)
                for i in T.Parallel(TILE):
                    scores[step * TILE + i] = sums[i]
            tk.block_topk(scores, lengths[row], K, chosen, order="index")
            T.copy(chosen, best[row, 0])

    return score_and_select


def main() -> None:
    import tilelang
    import torch

    kernel = tilelang.compile(program(), target={"kind": "cuda", "arch": "sm_90a"})
    # Small integers: their products and sums are exact, so the answer is too, ties included.
    query = torch.randint(-2, 3, (33, DIM), device="cuda").half()
    keys = torch.randint(-2, 3, (KEYS, DIM), device="cuda").half()
    lengths = torch.arange(33, device="cuda", dtype=torch.int32) * 128
    best = torch.empty(33, K, device="cuda", dtype=torch.int32)
    kernel(query, keys, lengths, best)
    scores = query.float() @ keys.float().T
    for row, length in enumerate(lengths.tolist()):
        order = scores[row, :length].sort(descending=True, stable=True).indices[:K]
        expected = torch.full((K,), -1, device="cuda", dtype=torch.int32)
        expected[: len(order)] = order.sort().values
        assert (best[row] == expected).all(), row
    print("score and select: every row's set is exact")


if __name__ == "__main__":
    main()
