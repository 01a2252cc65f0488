"""`serve` and `up` as cyclopts sees them: options with their help. What they do is in the modules of their names."""

from typing import Annotated

from cyclopts import Parameter

from headrace.cli import serve as serving
from headrace.cli import up as upping
from headrace.cli.options import Json, Settings

Flag = Parameter(negative=(), show_default=False)


def serve(
    *,
    node_id: Annotated[int, Parameter(help="This node's number, unlike any other node's.")],
    listen: Annotated[str, Parameter(metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.")],
    data: Annotated[
        str, Parameter(metavar="DIR", help="Where this node alone keeps its files; several with commas between them.")
    ],
    metadata: Annotated[str, Parameter(metavar="sqlite:FILE", help="Where topics and settings are kept.")],
    metrics: Annotated[
        str,
        Parameter(metavar="HOST:PORT", help="Where /metrics, /healthz and /readyz answer; port 0 takes a free one."),
    ] = "127.0.0.1:0",
    advertise: Annotated[
        str,
        Parameter(
            metavar="HOST:PORT",
            show_default=False,
            help="What clients are told to connect to, when that is not --listen; port 0 is that of --listen.",
        ),
    ] = "",
    settings: Settings = (),
    json: Json = False,
    stop_on_eof: Annotated[bool, Flag, Parameter(help="Stop cleanly when standard input ends.")] = False,
) -> int:
    return serving.serve(
        node_id=node_id,
        listen=listen,
        data=data,
        metadata=metadata,
        metrics=metrics,
        advertise=advertise,
        settings=settings,
        json=json,
        stop_on_eof=stop_on_eof,
    )


def up(
    *,
    port: Annotated[int, Parameter(help="Where clients connect; 0 takes a free one.")] = 9092,
    data: Annotated[str | None, Parameter(metavar="DIR", help="Where everything is kept.")] = None,
    ephemeral: Annotated[bool, Flag, Parameter(help="Keep nothing: a directory that goes away at the end.")] = False,
    settings: Settings = (),
    json: Annotated[bool, Flag, Parameter(help="Print exactly one line of JSON when ready.")] = False,
) -> int:
    return upping.up(port=port, data=data, ephemeral=ephemeral, settings=settings, json=json)
