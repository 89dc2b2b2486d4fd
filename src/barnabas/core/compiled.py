"""Whether this is the compiled wheel or the source as it is: the only difference that code may ask for.

The build compiles this module too, and a compiled module is no Python file.
"""

from __future__ import annotations

from typing import Final

CODE: Final = "pure Python" if __file__.endswith(".py") else "compiled"
