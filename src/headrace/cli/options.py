"""Options that several commands share, each written once."""

from typing import Annotated

from cyclopts import Parameter

from headrace.cli.values import parse_address


def _check_bootstrap(kind: object, text: str) -> None:  # noqa: ARG001  # cyclopts hands over the type too
    for address in text.split(","):
        parse_address(address.strip(), "--bootstrap")


Bootstrap = Annotated[
    str,
    Parameter(
        env_var="HEADRACE_BOOTSTRAP",
        validator=_check_bootstrap,
        metavar="HOST:PORT",
        help="Where to reach the cluster; several with commas between them.",
    ),
]

Json = Annotated[bool, Parameter(negative=(), show_default=False, help="Print one line of JSON.")]

Settings = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        negative=(),
        show_default=False,
        metavar="KEY=VALUE",
        help="A setting, with Kafka's name for it; may be given several times.",
    ),
]
