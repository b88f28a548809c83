"""Top-k of rows whose elements are divided over the ranks of a ``torch.distributed`` group.

:func:`topk` says how; :mod:`tl_topk.distributed.rule` which method is used, and what it sends.
"""

from tl_topk.distributed.api import LocalTopK, topk
from tl_topk.distributed.rule import choose_method, received_bytes

__all__ = ["LocalTopK", "choose_method", "received_bytes", "topk"]
