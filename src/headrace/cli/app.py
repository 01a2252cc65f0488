"""The one place where a command is found, and where what went wrong becomes a sentence and an exit code."""

from collections.abc import Sequence

from cyclopts import App, CycloptsError

from headrace import __version__
from headrace.cli import output
from headrace.cli.commands import COMMANDS, GROUPS, TOP_EXAMPLES, examples, paragraphs
from headrace.cli.outcome import Failure, OutputClosed, UsageError
from headrace.errors import KafkaError


def build() -> App:
    app = App(
        name="headrace",
        help="A partitioned log that speaks the Kafka protocol.",
        version=__version__,
        help_format="plaintext",
        help_epilogue=examples(TOP_EXAMPLES),
        suppress_keyboard_interrupt=False,
    )
    groups = {"": app}
    for order, (path, command) in enumerate(COMMANDS.items()):
        group, _, name = path.rpartition(" ")
        if group not in groups:
            summary, lines = GROUPS[group]
            groups[group] = App(name=group, help=summary, help_epilogue=examples(lines), sort_key=order)
            app.command(groups[group])
        groups[group].command(
            command.where,
            name=name,
            help=paragraphs(command.help),
            help_epilogue=examples(command.examples),
            sort_key=order,
        )
    return app


def run(arguments: Sequence[str]) -> int:
    try:
        code = build()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        output.flush()
        return code if isinstance(code, int) else 0
    except OutputClosed:
        output.close()
        return 0
    except (CycloptsError, UsageError) as error:
        output.say(f"headrace: {error}")
        output.say("--help, after any command too, shows what is possible.")
        return 2
    except (Failure, KafkaError) as error:
        output.say(f"headrace: {error}")
        return 1
    except OSError as error:
        output.say(f"headrace: {_os_sentence(error)}")
        return 1


def _os_sentence(error: OSError) -> str:
    """`[Errno 2] No such file or directory: 'x'` is for programmers."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
