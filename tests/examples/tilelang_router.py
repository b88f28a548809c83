"""A mixture-of-experts router in TileLang: softmax over 256 experts, the best 8, their weights.

One block a token; the selection happens where the logits lie, in shared memory.
"""

import tilelang.language as T  # noqa: N812

from tl_topk import lang as tk

EXPERTS, CHOSEN, THREADS = 256, 8, 128


def program():
    tokens = T.dynamic("tokens")

    @T.prim_func
    def route(
        logits: T.Tensor((tokens, EXPERTS), "float32"),
        experts: T.Tensor((tokens, CHOSEN), "int32"),
        weights: T.Tensor((tokens, CHOSEN), "float32"),
    ):
        with T.Kernel(tokens, threads=THREADS) as token:
            scores = T.alloc_shared((EXPERTS,), "float32")
            best = T.alloc_shared((CHOSEN,), "int32")
            mine = T.alloc_fragment((EXPERTS,), "float32")
            highest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(logits[token, 0], scores)
            T.copy(scores, mine)
            T.reduce_max(mine, highest, dim=0)
            for i in T.Parallel(EXPERTS):
                mine[i] = T.exp(mine[i] - highest[0])
            T.reduce_sum(mine, total, dim=0)
            tk.block_topk(scores, EXPERTS, CHOSEN, best, order="value")
            for i in T.Parallel(CHOSEN):
                experts[token, i] = best[i]
                weights[token, i] = T.exp(scores[best[i]] - highest[0]) / total[0]

    return route


def main() -> None:
    import tilelang
    import torch

    kernel = tilelang.compile(program(), target={"kind": "cuda", "arch": "sm_90a"})
    logits = torch.randn(300, EXPERTS, device="cuda")
    logits[7] = 1.0  # ties: the lower expert first
    experts = torch.empty(300, CHOSEN, device="cuda", dtype=torch.int32)
    weights = torch.empty(300, CHOSEN, device="cuda")
    kernel(logits, experts, weights)
    expected = logits.softmax(-1)
    order = logits.sort(dim=-1, descending=True, stable=True).indices[:, :CHOSEN]
    assert (experts == order).all()
    torch.testing.assert_close(weights, expected.gather(1, order))
    print("router: experts and weights agree with torch")


if __name__ == "__main__":
    main()
