"""Report of a chaos run that failed: the verdict first and last, the log of the run in between.

Pages that show the report cut it in the middle, and the brokers' logs are long.
"""

from __future__ import annotations

MARK = "verdict: "
VERDICT_CHARACTERS = 3_000
LOG_CHARACTERS = 30_000


def report(output: str, errors: str) -> str:
    """`output` is the log, which ends in the verdict; `errors` has the traceback of a run that broke off."""
    log, mark, told = output.rpartition(MARK)
    if mark:
        verdict = f"{mark}{told}"[:VERDICT_CHARACTERS].strip()
    else:
        log, verdict = output, f"{MARK}none; the run said last:\n{output[-VERDICT_CHARACTERS:].strip()}"
    parts = (
        verdict,
        f"standard error:\n{errors[-VERDICT_CHARACTERS:].strip()}",
        f"the log of the run:\n{log[-LOG_CHARACTERS:].strip()}",
        verdict,
    )
    return "\n\n".join(parts)
