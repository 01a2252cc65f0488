"""How this very program is started again."""

import sys
from pathlib import Path


def program() -> list[str]:
    """The command `headrace` of this interpreter, wherever PATH leads."""
    script = Path(sys.executable).parent / "headrace"
    return [str(script)] if script.exists() else [sys.executable, "-m", "headrace"]
