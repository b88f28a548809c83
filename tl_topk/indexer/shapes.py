"""What a compiled program is for, and the sizes that follow: plain numbers, no TileLang."""

from __future__ import annotations

from dataclasses import dataclass

from tl_topk.indexer.sizes import DIM, PAGE, SCALE_BYTES

__all__ = [
    "DIM", "PAGE", "PAGE_BYTES", "REHEARSAL_WORDS", "SCALE_BYTES", "STATE_WORDS", "WARP",
    "ScoreShape",
]  # fmt: skip

WARP = 32
REHEARSAL_WORDS = 1532  # at least kRehearsalWords
STATE_WORDS = 112  # of the filter: at least sizeof(FilterState) / 4
PAGE_BYTES = PAGE * (DIM + SCALE_BYTES)  # of float8 keys
_SHARED_BYTES = 224 * 1024
_MAX_STAGES = 8
#: To a multiprocessor, from pages: enough to keep the memory busy, and not so many that all else
#: that goes to memory meanwhile waits behind them.
_BYTES_UNDER_WAY = 100 * 1024
_MAX_GROUP = 4  # queries over the same keys


@dataclass(frozen=True)
class ScoreShape:
    """What a compiled program is for. Queries that see the same keys form a *group*.

    Attributes:
        paged: keys on pages, a group a sequence; in a row otherwise, a group a few rows.
        heads: of each query.
        queries: of a group.
        float8: keys with a scale each; bfloat16 without otherwise.
        compress_ratio: tokens a key stands for; 1 unless paged.
        lens_per_query: does ``context_lens`` have a column a query? False unless paged.
        fused: does it also filter? False unless paged.
    """

    paged: bool
    heads: int
    queries: int
    float8: bool
    compress_ratio: int = 1
    lens_per_query: bool = False
    fused: bool = False

    @classmethod
    def of_row(cls, heads: int, float8: bool) -> ScoreShape:
        """For keys in a row: as many queries at once as the tensor core takes gladly."""
        return cls(False, heads, min(_MAX_GROUP, 128 // heads), float8)

    @property
    def name(self) -> str:
        """Tells it from every other, fit for a file's name."""
        kind = "e4m3" if self.float8 else "bf16"
        if not self.paged:
            return f"row-{kind}-h{self.heads}"
        lens = "each" if self.lens_per_query else "one"
        fused = "-fused" if self.fused else ""
        return f"pages-{kind}-h{self.heads}-n{self.queries}-c{self.compress_ratio}-{lens}{fused}"

    @property
    def columns(self) -> int:
        """Heads of all queries of a group: one side of the product."""
        return self.heads * self.queries

    @property
    def blocks_per_multiprocessor(self) -> int:
        """Three where there is room for them, so that each works while others wait. One where
        blocks wait for one another.
        """
        return 3 if self._small else 1

    @property
    def _small(self) -> bool:
        return self.paged and self.float8 and not self.fused and self.columns <= 128

    @property
    def tile(self) -> int:
        """Keys multiplied at once: as many as leaves the threads registers enough."""
        if not self.float8 or self.columns > 128:
            return 128
        if self.paged:
            return 64 if self._small else 256 if self.queries == 1 else 128
        return 192

    @property
    def weights_in_registers(self) -> bool:
        return self.columns <= 128

    @property
    def dealt(self) -> int:
        """Sums that a thread has of a tile: two keys and the queries, over four lanes."""
        return -(-2 * self.queries // 4)

    @property
    def consumers(self) -> int:
        """Threads that multiply: four warps for 64 keys of a tile."""
        return 2 * self.tile

    @property
    def guessers(self) -> int:
        """Warps that find floors, each of every so manyth query."""
        return min(self.queries, 2) if self.fused else 0

    @property
    def helpers(self) -> int:
        """Threads that do not multiply: a warp that loads, those that find floors, and in fused
        programs one that rehearses the selection.
        """
        return (1 + self.guessers + self.fused) * WARP

    @property
    def threads(self) -> int:
        return self.consumers + self.helpers

    @property
    def kept_tiles(self) -> int:
        """Tiles whose scores a block keeps until the floor is known."""
        return 12 if self.dealt == 1 else 6

    @property
    def tail_teams(self) -> int:
        """Threads that multiply select from the rows of a sequence in so many teams at once."""
        return 2 if self.queries > 1 and self.float8 else 1

    @property
    def list_entries(self) -> int:
        """Candidates that a team can hold."""
        return (8192 if self.queries == 1 else 6144) if self.float8 else 4608

    @property
    def tail_words(self) -> int:
        """At least sizeof(TailState) / 4, of all teams."""
        return self.tail_teams * (2 * self.list_entries + 1500)

    @property
    def stages(self) -> int:
        row_bytes = DIM + SCALE_BYTES if self.float8 else 2 * DIM
        query_bytes = self.columns * DIM * (1 if self.float8 else 2)
        kept_bytes = self.kept_tiles * self.dealt * self.consumers * 4
        ring_bytes = _SHARED_BYTES // self.blocks_per_multiprocessor
        ring_bytes -= query_bytes + 4 * self.columns
        if self.fused:
            ring_bytes -= kept_bytes + 4 * (self.tail_words + STATE_WORDS + REHEARSAL_WORDS)
        tile_bytes = self.tile * row_bytes
        most = _MAX_STAGES
        if self.paged:
            most = _BYTES_UNDER_WAY // (self.blocks_per_multiprocessor * tile_bytes)
        return min(most, ring_bytes // tile_bytes)

    @property
    def lens_are_lengths(self) -> bool:
        """Do the context lengths already say what each row sees?"""
        return self.queries == 1 and self.compress_ratio == 1

    def exchange_bytes(self, blocks: int, sequences: int, capacity: int) -> int:
        """Of ``indexer_exchange.cuh``'s Exchange, for segments of ``capacity`` survivors."""
        segments = (blocks + sequences) * self.queries
        return segments * (4 * (self.consumers // WARP) + 16 + 8 * capacity)
