"""README's first example runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_the_readme_runs() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    example, *_ = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["indices"].shape == (4, 2048)
    assert (names["indices"][3, :100] >= 0).all()
    assert (names["indices"][3, 100:] == -1).all()
