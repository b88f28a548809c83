"""The sizes of an indexer that nothing here varies."""

PAGE = 64  # keys
DIM = 128
SCALE_BYTES = 4
