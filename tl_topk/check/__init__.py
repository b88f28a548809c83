"""A differential fuzzer: cases from seeds, each run and compared with an obvious reference.

A case is data (:class:`Case`), made by :func:`make_case`, run and judged by :func:`failure`, made
small by :func:`shrink` and kept by :func:`save_case`. :func:`fuzz` does all of it.
"""

from tl_topk.check.case import Case, load_case, save_case
from tl_topk.check.families import FAMILIES
from tl_topk.check.fuzz import Finding, Report, fuzz
from tl_topk.check.generate import make_case
from tl_topk.check.shrink import shrink
from tl_topk.check.trial import Answer, difference, failure, run

__all__ = [
    "FAMILIES",
    "Answer",
    "Case",
    "Finding",
    "Report",
    "difference",
    "failure",
    "fuzz",
    "load_case",
    "make_case",
    "run",
    "save_case",
    "shrink",
]
