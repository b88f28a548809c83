"""The command line: ``tl-topk`` and ``python -m tl_topk``.

Exit codes: 0 done, 1 a wrong answer was found, 2 the command cannot be carried out (one line on
stderr says why), 130 interrupted, 143 terminated. A closed pipe ends it silently, as any filter.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

import tl_topk
from tl_topk.cli import calibrate, check, compile, demo, explain, info, select

__all__ = ["cli", "main"]

_FAILED, _INTERRUPTED, _TERMINATED = 2, 130, 143


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(tl_topk.__version__, prog_name="tl-topk")
@click.pass_context
def cli(context: click.Context) -> None:
    """Exact top-k of long rows."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(_FAILED)


for _command in (
    demo.demo,
    info.info,
    select.select,
    check.check,
    explain.explain,
    calibrate.calibrate,
    compile.compile_kernels,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    # An exception unwinds, so that temporary files go; the default action would leave them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        code = cli.main(arguments, prog_name="tl-topk", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except click.ClickException as error:
        _fail(error.format_message())
    except (ValueError, TypeError, RuntimeError, ImportError, MemoryError, OSError) as error:
        _fail(str(error) or type(error).__name__)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    print(f"tl-topk: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(_FAILED)
