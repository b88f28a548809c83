"""Exact top-k of long rows in a few microseconds: see :func:`topk` and :func:`topk_indices`.

Importing this package loads the native library and touches no GPU; torch is used when its tensors
are passed and never required.
"""

import sys

from tl_topk._ffi import DeviceInfo, LaunchConfig, TopKPlan
from tl_topk.about import Info, info
from tl_topk.api import TopK, topk, topk_indices
from tl_topk.arrays import adopt_torch
from tl_topk.dispatch import Decision, fixed, set_policy, use_policy
from tl_topk.explain import explain
from tl_topk.indexer import indexer_topk
from tl_topk.mapped import topk_paged, topk_ragged
from tl_topk.plans import clear_plan_cache
from tl_topk.problem import Problem

__version__ = "0.1.0"

if sys.modules.get("torch") is not None:
    adopt_torch()

__all__ = [
    "Decision",
    "DeviceInfo",
    "Info",
    "LaunchConfig",
    "Problem",
    "TopK",
    "TopKPlan",
    "__version__",
    "clear_plan_cache",
    "explain",
    "fixed",
    "indexer_topk",
    "info",
    "set_policy",
    "topk",
    "topk_indices",
    "topk_paged",
    "topk_ragged",
    "use_policy",
]
