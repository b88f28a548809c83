"""One host function, two kernels: scores by a TileLang kernel, selection by the native one.

The native library is called through TVM FFI from TileLang's host code, on the same stream and with
no Python in between, so the pair is one call, and can be captured in a CUDA graph.
"""

import tilelang.language as T  # noqa: N812

from tl_topk import lang as tk

DIM, K, THREADS = 64, 2048, 128


def program():
    length = T.dynamic("length")

    @T.prim_func
    def score_then_select(
        query: T.Tensor((DIM,), "float32"),
        keys: T.Tensor((length, DIM), "float32"),
        scores: T.Tensor((1, length), "float32"),
        best: T.Tensor((1, K), "int32"),
    ):
        with T.Kernel(T.ceildiv(length, THREADS), threads=THREADS) as block:
            thread = T.get_thread_binding()
            key = block * THREADS + thread
            total = T.alloc_local((1,), "float32")
            total[0] = 0
            if key < length:
                for j in T.serial(DIM):
                    total[0] += query[j] * keys[key, j]
                scores[0, key] = total[0]
        tk.host_topk(scores, K, best, order="index")

    return score_then_select


def main() -> None:
    import tilelang
    import torch

    kernel = tilelang.compile(program(), target={"kind": "cuda", "arch": "sm_90a"})
    length = 100_000
    query = torch.randint(-2, 3, (DIM,), device="cuda").float()
    keys = torch.randint(-2, 3, (length, DIM), device="cuda").float()
    scores = torch.empty(1, length, device="cuda")
    best = torch.empty(1, K, device="cuda", dtype=torch.int32)
    kernel(query, keys, scores, best)  # loads what is to be captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(query, keys, scores, best)
    for _ in range(3):
        keys.copy_(torch.randint(-2, 3, (length, DIM), device="cuda"))
        best.fill_(-7)
        graph.replay()
        expected = (keys @ query).sort(descending=True, stable=True).indices[:K].sort().values
        assert (best[0] == expected).all()
    print("host chain: two kernels in one graph, exact")


if __name__ == "__main__":
    main()
