"""Top-k of rows whose elements are divided over the ranks of a ``torch.distributed`` group.

:func:`topk` says how, :class:`Plan` does it many times over with less ado, and
:mod:`tl_topk.distributed.rule` says which method is used, and what it sends.
"""

from tl_topk.distributed.api import topk
from tl_topk.distributed.plan import Plan
from tl_topk.distributed.results import LocalTopK
from tl_topk.distributed.rule import choose_method, received_bytes

__all__ = ["LocalTopK", "Plan", "choose_method", "received_bytes", "topk"]
