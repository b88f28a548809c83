"""``tl-topk calibrate``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tl_topk.cli.common import json_option, print_json, progress, show

__all__ = ["calibrate"]


@click.command()
@click.option("--device", "device_id", type=int, default=0, show_default=True, help="Which GPU.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="Another file than the one that the policy looks for.",
)  # fmt: skip
@json_option
def calibrate(device_id: int, output: Path | None, as_json: bool) -> None:
    """Time every candidate on this GPU, for the policy "measured"."""
    try:
        from tl_topk.calibrate import calibrate as prepare
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise RuntimeError("calibrate: expected torch to be installed, found none") from None
    calibration = prepare(device_id, output)
    entries = []
    with progress("problems") as bar:
        task = bar.add_task(f"timing on {calibration.gpu.name}", total=len(calibration.problems))
        for entry in calibration.run():
            entries.append(entry)
            bar.advance(task)
    if as_json:
        print_json({"path": str(calibration.path), "entries": [asdict(each) for each in entries]})
    else:
        show(f"{len(entries)} problems in {calibration.path}")
