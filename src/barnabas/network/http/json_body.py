"""JSON of a request's body.

JSON can escape one half of a surrogate pair. Python takes it for a character, but neither an answer nor a log
line can be written with it. Such a body is refused where it is read.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(body: bytes) -> Any:
    """The value. ValueError, or RecursionError, for a body that is not JSON of whole characters."""
    found = json.loads(body)
    if _SURROGATE.search(body) is not None:
        json.dumps(found, ensure_ascii=False).encode()
    return found
