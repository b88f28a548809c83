"""Bad arguments of indexer_topk: one error that names the argument, and nothing written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
from indexer_cases import BF16, contiguous_call, paged_call

pytestmark = pytest.mark.usefixtures("skip_uncompiled")

CANARY = -77
ROWS, K = 4, 16


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def refused(name: str, given: dict[str, Any], device: str, **changes: Any) -> None:
    out = torch.full((ROWS, K), CANARY, dtype=torch.int32, device=device)
    arguments = {"k": K, "out": out} | given | changes
    with pytest.raises((ValueError, TypeError), match=rf"^{name}: "):
        tl_topk.indexer_topk(**arguments)
    assert (out == CANARY).all()


@pytest.fixture
def pages(rng: np.random.Generator, device: str) -> dict[str, Any]:
    return paged_call(rng, [300, 200], next_n=2).on(device)


@pytest.fixture
def row(rng: np.random.Generator) -> dict[str, Any]:
    return contiguous_call(rng, ROWS, 500).on("cpu")


WRONG_TENSORS: list[tuple[str, Any]] = [
    ("q", lambda t: t[..., :64].contiguous()),
    ("q", lambda t: t[:, :, :63].contiguous()),
    ("q", lambda t: t.view(torch.uint8)),
    ("q", lambda t: t.float()),
    ("q", lambda t: t[:, 0]),
    ("q", lambda t: t[:, :1].contiguous()),
    ("q", lambda t: t.to(BF16)),
    ("q", lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)),
    ("keys", lambda t: t[:, :32].contiguous()),
    ("keys", lambda t: t[..., :128].contiguous()),
    ("keys", lambda t: t.view(torch.int8)),
    ("keys", lambda t: t.view(torch.float8_e4m3fn)),
    ("keys", lambda t: t.squeeze(2)),
    ("keys", lambda t: t[:, :, :, :].transpose(0, 1)),
    ("keys", lambda _: None),
    ("weights", lambda t: t[:3]),
    ("weights", lambda t: t[:, :32].contiguous()),
    ("weights", lambda t: t.half()),
    ("weights", lambda t: t.double()),
    ("weights", lambda t: t.t()),
    ("weights", lambda t: t.cpu().numpy()),
    ("block_table", lambda t: t[:1]),
    ("block_table", lambda t: t.long()),
    ("block_table", lambda t: t.view(-1)),
    ("block_table", lambda t: t.t()),
    ("context_lens", lambda t: t[:1]),
    ("context_lens", lambda t: t.long()),
    ("context_lens", lambda t: t.view(2, 1)),
    ("context_lens", lambda _: None),
]


@pytest.mark.parametrize(("name", "spoil"), WRONG_TENSORS)
def test_tensors_beside_pages(device: str, pages: dict[str, Any], name: str, spoil: Any) -> None:
    expected = "keys" if name == "q" and spoil(pages["q"]).dtype == BF16 else name
    refused(expected, pages, device, **{name: spoil(pages[name])})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("k", -1), ("k", 2.5), ("k", 2**31), ("k", True), ("next_n", 0), ("next_n", 5),
        ("next_n", "2"), ("compress_ratio", 0), ("compress_ratio", 1.5), ("result", "slot"),
        ("result", None), ("order", "best"), ("backend", "triton"), ("backend", None),
    ],
)  # fmt: skip
def test_options(device: str, pages: dict[str, Any], name: str, wrong: Any) -> None:
    refused(name, pages, device, **{name: wrong})


def test_what_does_not_go_with_pages(device: str, pages: dict[str, Any]) -> None:
    numbers = torch.zeros(ROWS, dtype=torch.int32, device=device)
    refused("key_scales", pages, device, key_scales=torch.ones(300, device=device))
    refused("row_starts", pages, device, row_starts=numbers)
    refused("row_ends", pages, device, row_ends=numbers)
    refused("offsets", pages, device, offsets=numbers)
    refused("offsets", pages, device, result="ragged")
    refused("offsets", pages, device, result="ragged", offsets=numbers[:2])
    refused("offsets", pages, device, result="ragged", offsets=numbers.long())


def test_a_hint_is_checked(pages: dict[str, Any], device: str) -> None:
    hint = torch.zeros(ROWS, 7, dtype=torch.int32, device=device)
    refused("hint", pages, device, hint=hint.long())
    refused("hint", pages, device, hint=hint[:2])
    refused("hint", pages, device, hint=hint.flatten())
    refused("hint", pages, device, hint=[1, 2])


def test_outputs(device: str, pages: dict[str, Any]) -> None:
    for wrong in (
        torch.empty(ROWS, K, device=device),
        torch.empty(ROWS, K + 1, dtype=torch.int32, device=device),
        torch.empty(K, ROWS, dtype=torch.int32, device=device).t(),
        [1, 2],
    ):
        refused("out", pages, device, out=wrong)


def test_the_backend_of_another_device(device: str, pages: dict[str, Any]) -> None:
    refused("backend", pages, device, backend={"cpu": "dsmem", "cuda": "cpu"}[device])


@pytest.mark.gpu
def test_what_the_fused_kernel_does_not_serve(rng: np.random.Generator) -> None:
    pages = {**paged_call(rng, [300, 200], next_n=2).on("cuda"), "backend": "pipelined"}
    refused("order", pages, "cuda", order="index")
    refused("k", pages, "cuda", k=4097, out=None)
    row = {**contiguous_call(rng, ROWS, 500).on("cuda"), "backend": "pipelined"}
    refused("block_table", row, "cuda")


def test_keys_in_a_row(row: dict[str, Any]) -> None:
    numbers = torch.zeros(ROWS, dtype=torch.int32)
    scales = row["key_scales"]
    refused("key_scales", row, "cpu", key_scales=None)
    refused("key_scales", row, "cpu", key_scales=scales[:-1])
    refused("key_scales", row, "cpu", key_scales=scales.double())
    refused("key_scales", row, "cpu", q=row["q"].to(BF16), keys=row["keys"].to(BF16))
    refused("keys", row, "cpu", keys=row["keys"].to(BF16))
    refused("keys", row, "cpu", keys=row["keys"].view(-1))
    refused("q", row, "cpu", q=row["q"].unsqueeze(1))
    refused("next_n", row, "cpu", next_n=2)
    refused("compress_ratio", row, "cpu", compress_ratio=4)
    refused("result", row, "cpu", result="slots")
    refused("context_lens", row, "cpu", context_lens=numbers)
    refused("row_starts", row, "cpu", row_starts=numbers[:3])
    refused("row_ends", row, "cpu", row_ends=numbers.long())


def test_tensors_that_are_none(row: dict[str, Any]) -> None:
    for name in ("q", "keys", "weights"):
        for wrong in (None, 3, np.zeros((4, 64, 128), np.float32)):
            refused(name, row, "cpu", **{name: wrong})
    refused("weights", row, "cpu", weights=torch.zeros(4, 64).to_sparse())
