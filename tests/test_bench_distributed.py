"""The scaling account and the tables of the distributed benchmarks, from made-up results."""

from __future__ import annotations

import pytest

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench import scaling
from bench.distributed_tables import distributed_table
from bench.shard_stages import RANKS, ROWS, K
from bench_documents import BYTES_PER_US, START_US, alone, distributed_documents, on_two_gpus
from tl_topk.distributed.rule import choose_method, received_bytes


@pytest.fixture(scope="module")
def model() -> scaling.Model:
    return scaling.Model.of(on_two_gpus(), alone())


def test_the_law_of_the_collectives_is_found(model: scaling.Model) -> None:
    for line in (model.gather, model.reduce):
        assert line.start_us == pytest.approx(START_US, rel=0.01)
        assert line.bytes_per_us == pytest.approx(BYTES_PER_US, rel=0.01)


def test_two_ranks_are_as_measured(model: scaling.Model) -> None:
    size = received_bytes("gather", 2, 1, K, 4)
    assert model.collectives("gather", 1, 2) == pytest.approx(START_US + size / BYTES_PER_US)


def test_more_ranks_take_more_steps(model: scaling.Model) -> None:
    assumed = model.assumed
    size = received_bytes("gather", 8, 1, K, 4)
    expected = START_US + 6 * assumed.nvlink_hop_us + size / BYTES_PER_US
    assert model.collectives("gather", 1, 8) == pytest.approx(expected)
    size = received_bytes("gather", 16, 1, K, 4)
    hops = 12 * assumed.nvlink_hop_us + 2 * assumed.network_hop_us
    expected = START_US + hops + size / assumed.network_bytes_per_us
    assert model.collectives("gather", 1, 16) == pytest.approx(expected)
    times = [model.collectives("threshold", 16, ranks) for ranks in RANKS]
    assert times == sorted(times)


def test_every_step_is_the_sum_of_its_parts(model: scaling.Model) -> None:
    projected = scaling.project(model)
    assert len(projected) == len(ROWS) * len(scaling.CONTEXTS) * (1 + len(RANKS))
    for step in projected:
        parts = step["select_us"] + step["collective_us"] + step["merge_us"]
        assert step["us"] == pytest.approx(parts, abs=0.02)
        if step["ranks"] == 1:
            assert step["us"] == step["select_us"]
        else:
            assert step["method"] == choose_method(step["ranks"], step["rows"], K, 4)


def test_tables() -> None:
    documents = distributed_documents()
    measured = distributed_table(documents["distributed"])
    assert measured.rows[0] == [
        "1 x 128K, k=512", "20.0", "40.0", "30.0", "8.0 + 6.0 + 4.0",
    ]  # fmt: skip
    projected = scaling.table(documents["scaling"])
    assert projected.header[:3] == ["case", "1 rank, us", "2 ranks, us"]
    assert projected.rows[0][:3] == ["1 x 1M", "15", "19 (6)"]
