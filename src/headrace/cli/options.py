"""Options that several commands share, each written once."""

from typing import Annotated

from cyclopts import Parameter

BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    Parameter(
        env_var="HEADRACE_BOOTSTRAP", help="Where to reach the cluster: HOST:PORT, several with commas between them."
    ),
]

Json = Annotated[bool, Parameter(negative=(), show_default=False, help="Print JSON, one value per line.")]

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
