"""The commands, found and parsed by cyclopts."""

from collections.abc import Sequence

from cyclopts import App, CycloptsError

from headrace import __version__
from headrace.cli.commands import COMMANDS, GROUPS, TOP_EXAMPLES, examples, paragraphs
from headrace.cli.outcome import UsageError


def run(arguments: Sequence[str]) -> object:
    try:
        return _build()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        raise UsageError(str(error)) from None


def _build() -> App:
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
