"""Default directory for checkpoints of pipelines that run without `--state`.

A checkpoint belongs to its pipeline, in any working directory. In a checkpoint below the working directory,
the same spec would start again in every directory, and write everything again. Earlier versions kept it
there; such a directory is still used where it exists.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

EARLIER: Final = "barnabas-pipelines"
"""Directory below the working directory that earlier versions made."""


def default_state() -> str:
    """The earlier directory if it exists, else one below the user's state directory."""
    if Path(EARLIER).is_dir():
        return EARLIER
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    return str(base / "barnabas" / "pipelines")
