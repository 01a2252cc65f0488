"""`python -m headrace.worker`: takes the steps of long work for a node that started it, and ends with that node.

Standard input brings work, pickled, or None, which asks for the next step of it; every answer is (whether it is over,
the step or what it raised).
"""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

NICENESS = 10
"""Whoever waits for the node comes first."""


def main() -> None:
    os.nice(NICENESS)
    # They are meant for the node, which ends this process when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may get between the answers
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    steps: Iterator[Any] = iter(())
    while True:
        request = requests.get()
        try:
            if request is not None:
                getattr(steps, "close", lambda: None)()
                steps = request()
            answer = (False, next(steps))
        except StopIteration:
            answer = (True, None)
        except Exception as error:  # whatever it is, whoever asked has to know
            answer = (True, error)
        pickle.dump(answer, answers)
        answers.flush()


def _listen(requests: "SimpleQueue[Any]") -> None:
    """In a thread of its own, so that the end of the node is noticed in the middle of a step."""
    try:
        while True:
            requests.put(pickle.load(sys.stdin.buffer))
    except EOFError:
        os._exit(0)


if __name__ == "__main__":
    main()
