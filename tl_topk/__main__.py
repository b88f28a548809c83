"""``python -m tl_topk``."""

from tl_topk.cli import main

main()
