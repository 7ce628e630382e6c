"""The blocks of the page about other tools that need libraries which the tests of all pages do not have."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "other-tools.md"
_BLOCK = re.compile(r"^```(?:py|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def block_about(module: str) -> str:
    """Return the only block that names a module."""
    (code,) = [block for block in _BLOCK.findall(PAGE.read_text(encoding="utf-8")) if module in block]
    return str(code)
