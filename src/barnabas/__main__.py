"""The `barnabas` command, also as `python -m barnabas`.

Ctrl-C during the imports ends the process at once: an exception would be a traceback out of a half imported
module. A process whose parent ignores SIGINT, as `nohup` does, goes on ignoring it.

A standard stream that the parent has closed (`>&-`) becomes the null device: Python has None in its place,
and the first socket would get its number.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    _open_closed_streams()
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from barnabas.cli.main import main as run_command  # noqa: PLC0415 - click takes a tenth of a second

    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


def _open_closed_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


if __name__ == "__main__":
    main()
