"""``tl-topk info``."""

from __future__ import annotations

import click

from tl_topk.about import info as gather
from tl_topk.cli.common import facts, json_option, print_json, show

__all__ = ["info"]


@click.command()
@json_option
def info(as_json: bool) -> None:
    """What is installed, and which backends work here."""
    found = gather()
    if as_json:
        print_json(found)
        return
    show(f"tl_topk {found['version']}", facts("build", found["build"]))
    for device in found["devices"]:
        show(facts(f"device {device['device_id']}", device))
    show(facts("backends", dict(found["backends"])))
