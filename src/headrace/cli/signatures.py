"""`serve`, `up` and `node withdraw` as cyclopts sees them: options with their help. What they do is elsewhere."""

from typing import Annotated

from cyclopts import Parameter

from headrace.cli import serve as serving
from headrace.cli import up as upping
from headrace.cli import withdraw as withdrawing
from headrace.cli.options import Json, Settings

Flag = Parameter(negative=(), show_default=False)

Metadata = Annotated[
    str,
    Parameter(
        metavar="URL",
        help="The cluster's metadata: sqlite:FILE for nodes of one machine, etcd://HOST:PORT,HOST:PORT for several.",
    ),
]


def serve(
    *,
    node_id: Annotated[int, Parameter(help="This node's number, unlike any other node's.")],
    listen: Annotated[str, Parameter(metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.")],
    data: Annotated[
        str, Parameter(metavar="DIR", help="Where this node alone keeps its files; several with commas between them.")
    ],
    metadata: Metadata,
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
    rack: Annotated[
        str,
        Parameter(show_default=False, help="Where this node stands: copies are spread over racks. Sets broker.rack."),
    ] = "",
    config: Annotated[
        str,
        Parameter(
            metavar="FILE",
            show_default=False,
            help="Settings with Kafka's names, one key=value on each line; --set wins.",
        ),
    ] = "",
    settings: Settings = (),
    json: Json = False,
    stop_on_eof: Annotated[bool, Flag, Parameter(help="Stop cleanly when standard input ends.")] = False,
    await_nodes: Annotated[
        int, Parameter(help="Say that it is ready only once so many nodes of the cluster are registered.")
    ] = 1,
) -> int:
    return serving.serve(
        node_id=node_id,
        listen=listen,
        data=data,
        metadata=metadata,
        metrics=metrics,
        advertise=advertise,
        rack=rack,
        config=config,
        settings=settings,
        json=json,
        stop_on_eof=stop_on_eof,
        await_nodes=await_nodes,
    )


def up(
    *,
    brokers: Annotated[int, Parameter(help="How many nodes; more than one keep copies of each other's records.")] = 1,
    port: Annotated[
        int, Parameter(help="Where clients connect, and the ports after it for further nodes; 0 takes free ones.")
    ] = 9092,
    data: Annotated[str | None, Parameter(metavar="DIR", help="Where everything is kept.")] = None,
    ephemeral: Annotated[bool, Flag, Parameter(help="Keep nothing: a directory that goes away at the end.")] = False,
    tier: Annotated[
        str | None, Parameter(help="Directory, or URL of an object store, where old segments of tiered topics go.")
    ] = None,
    settings: Settings = (),
    json: Annotated[bool, Flag, Parameter(help="Print exactly one line of JSON when ready.")] = False,
) -> int:
    return upping.up(
        brokers=brokers, port=port, data=data, ephemeral=ephemeral, tier=tier, settings=settings, json=json
    )


def withdraw(
    *,
    data: Annotated[str, Parameter(metavar="DIR", help="What the node was given as --data.")],
    metadata: Metadata,
    json: Json = False,
) -> int:
    return withdrawing.withdraw(data=data, metadata=metadata, json=json)
