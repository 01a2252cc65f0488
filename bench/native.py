"""The C programs of the benchmark, compiled when they are older than their sources."""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE / "out"


def program(name: str) -> str:
    source, binary = HERE / f"{name}.c", OUT / name
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        OUT.mkdir(exist_ok=True)
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", str(binary), str(source)], check=True)
    return str(binary)
