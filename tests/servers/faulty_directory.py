"""A directory on a disk that is slow, or fails, for the processes that are started with its environment.

There is no such disk to be had for a test: a library that is loaded before libc stands between the processes and a real
one (faulty_directory.c).
"""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class FaultyDirectory:
    def __init__(self, directory: Path, beside: Path) -> None:
        """What it needs for itself is put into `beside`."""
        beside.mkdir(parents=True, exist_ok=True)
        library, self._control = beside / "faulty.so", beside / "faults"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAULTY_DIRECTORY": f"{directory}/",
            "FAULTY_CONTROL": str(self._control),
        }
        self.be()

    def be(self, *, delay_ms: int = 0, failing_share: float = 0.0) -> None:
        """From the next call on. Of those that fail, half are done nevertheless, where that can be."""
        following = self._control.with_suffix(".next")
        following.write_text(f"{delay_ms} {int(failing_share * 1000)}\n")
        following.rename(self._control)
