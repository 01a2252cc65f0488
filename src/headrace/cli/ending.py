"""The one place where what went wrong becomes a sentence and an exit code."""

from collections.abc import Callable

from headrace.cli import output
from headrace.cli.outcome import Failure, OutputClosed, UsageError
from headrace.errors import KafkaError

DONE, FAILED, ASKED_WRONGLY = 0, 1, 2


def run(command: Callable[[], object]) -> int:
    try:
        code = command()
        output.flush()
        return code if isinstance(code, int) else DONE
    except KeyboardInterrupt:
        output.say("headrace: interrupted")
        return FAILED
    except OutputClosed:
        output.close()
        return DONE
    except SystemExit:  # rich's word for a closed pipe, when help is piped into `head`
        return DONE
    except UsageError as error:
        output.say(f"headrace: {error}")
        output.say("--help, after any command too, shows what is possible.")
        return ASKED_WRONGLY
    except UnicodeEncodeError as error:  # What records and files hold stays bytes: only an argument becomes bytes here.
        output.say(f"headrace: {error.object!r} is not UTF-8")
        return ASKED_WRONGLY
    except (Failure, KafkaError) as error:
        output.say(f"headrace: {error}")
        return FAILED
    except OSError as error:
        output.say(f"headrace: {_os_sentence(error)}")
        return FAILED


def _os_sentence(error: OSError) -> str:
    """`[Errno 2] No such file or directory: 'x'` is for programmers."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
