"""Name of the build in use: compiled wheel or pure Python. Code may ask for no other difference.

The build compiles this module too, and a compiled module is no Python file.
"""

from __future__ import annotations

from typing import Final

CODE: Final = "pure Python" if __file__.endswith(".py") else "compiled"
