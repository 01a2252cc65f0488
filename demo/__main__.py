"""`make demo`: the whole thing once, with everything that can go wrong, and the proof that nothing did.

python -m demo [--directory build/demo] [--write]
"""

import argparse
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

from demo import finale, report, terminal
from demo.acts import ACTS
from demo.proofs.all import prove
from demo.stage import Stage
from demo.terminal import Terminal
from headrace.errors import KafkaError

DIRECTORY = Path("build/demo")
PLOT = Path("docs/demo.svg")
CLOSING = "The shop closes, Spark reads on to the end"
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupt(*_: object) -> None:
    """Once: whoever is impatient does not keep it from ending all that it has started."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def play(directory: Path) -> Stage:
    with Terminal() as shown:
        stage = Stage(directory, shown)
        try:
            shown.begin("Three brokers, a tier and Spark start")
            stage.open()
            play_acts(stage)
        finally:
            stage.end()
    return stage


def play_acts(stage: Stage) -> None:
    """After an act that fails no other one is played, and everything is read back all the same, and judged."""
    for act in ACTS:
        stage.terminal.begin(act.title)
        if not stage.attempt(act.title, partial(act.play, stage)):
            break
    stage.terminal.begin(CLOSING)
    stage.attempt(CLOSING, partial(finale.close, stage))
    stage.terminal.begin("Everything is read back")
    finale.read_back(stage)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--directory", type=Path, default=DIRECTORY)
    parser.add_argument("--write", action="store_true", help=f"renew {PLOT} too")
    chosen = parser.parse_args()
    directory: Path = chosen.directory.absolute()
    for number in SIGNALS:
        signal.signal(number, interrupt)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        stage = play(directory)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (AssertionError, RuntimeError, KafkaError, OSError) as failure:
        print(f"The demo did not begin: {failure}\n{directory} has all that is left of it", file=sys.stderr)
        return 1
    promises = prove(stage.seen)
    report.write(directory, stage.seen, promises)
    if chosen.write:
        PLOT.write_text(report.plot(stage.seen))
    terminal.show(promises)
    print(f"{stage.now_s():.0f} s in all; {directory / 'report.html'} shows it, report.json beside it")
    return 0 if all(one.ok for one in promises) else 1


if __name__ == "__main__":
    sys.exit(main())
