"""The `barnabas` command, also as `python -m barnabas`.

Ctrl-C during the imports ends the process at once: an exception would be a traceback out of a half imported
module. A process whose parent ignores SIGINT, as `nohup` does, goes on ignoring it.
"""

from __future__ import annotations

import signal


def main() -> None:
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from barnabas.cli.main import main as run_command  # noqa: PLC0415 - click takes a tenth of a second

    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


if __name__ == "__main__":
    main()
