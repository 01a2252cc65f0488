"""`headrace own`: list, watch, claim, release."""

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Literal

from cyclopts import Parameter

from headrace import own
from headrace.cli import output, own_list
from headrace.cli.asking import Told, say_who_is_silent
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.options import Bootstrap, Json
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.values import parse_span_ms
from headrace.cli.watch import administrator
from headrace.core.ownership_rules import GENERATION_MAX

PATIENCE_S = 3.0
"""With a broker that does not say who else there is."""

Flag = Parameter(negative=(), show_default=False)
Group = Annotated[str, Parameter(help="The group: owners in different groups do not see each other.")]
Groups = Annotated[tuple[str, ...], Parameter(help="Only these groups.", negative=())]
Kind = Literal["produce", "fetch", "both"]


def list_owners(groups: Groups = (), /, *, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    async def ask() -> list[own_list.Row]:
        async with administrator(bootstrap) as admin:
            return await own_list.gather(admin, groups)

    rows = asyncio.run(ask())
    if json:
        output.document({"own": rows})
    elif rows:
        output.table(list(own_list.COLUMNS), [[cell(row) for cell in own_list.COLUMNS.values()] for row in rows])
    else:
        output.line("Nobody owns anything")


def watch(
    groups: Groups = (),
    /,
    *,
    every: Annotated[str, Parameter(metavar="SPAN", help="How often to look, such as 500ms or 2s.")] = "1s",
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    every_ms = parse_span_ms(every, "--every")

    async def look() -> None:
        async with administrator(bootstrap) as admin:
            before = own_list.by_key(await own_list.gather(admin, groups))
        _tell_changes({}, before, json)
        silent: Mapping[int, str] = {}
        while True:
            with suppress(TimeoutError):  # it hangs: another one is asked from now on
                async with administrator(bootstrap) as admin:
                    while True:
                        told = await own_list.ask(admin, groups, PATIENCE_S)
                        say_who_is_silent(Told({}, {n: why for n, why in told.silent.items() if n not in silent}))
                        now, silent = own_list.seen(told, before), told.silent
                        _tell_changes(before, now, json)
                        before = now
                        await asyncio.sleep(every_ms / 1000)

    asyncio.run(look())


def _tell_changes(
    before: Mapping[own_list.Key, own_list.Row], now: Mapping[own_list.Key, own_list.Row], as_json: bool
) -> None:
    for change in own_list.changes(before, now):
        output.document(change) if as_json else output.line(own_list.sentence(change))
    output.flush()


def claim(
    group: Group,
    /,
    *resources: Annotated[str, Parameter(help="Partitions, as in orders-0, or any other names.")],
    generation: Annotated[
        int | None,
        Parameter(help="Take over, from whoever has it: the last generation that you know of. 0 resets it."),
    ] = None,
    wait: Annotated[bool, Flag, Parameter(help="Wait until nobody has it.")] = False,
    exclusive: Annotated[
        Kind | None, Parameter(help="Keep everybody else from producing, from fetching, or from both.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    if wait and generation is not None:
        raise UsageError("give --wait or --generation: whoever takes over does not wait")
    if generation is not None and not 0 <= generation <= GENERATION_MAX:
        raise UsageError(f"--generation is from 0 to {GENERATION_MAX}, not {generation}")
    _check(resources)
    chosen: own.Exclusive = True if exclusive == "both" else exclusive or False

    async def hold() -> None:
        async with administrator(bootstrap):
            pass  # it says in a sentence when nobody is there
        async with own.claim(bootstrap, group, resources, generation, wait, chosen, client_id="headrace-cli") as held:
            _tell("held", held, json)
            while True:
                await held.lost.wait()
                _tell("lost", held, json)
                try:
                    await held.regained()
                except own.OwnershipLost:
                    raise Failure(f"lost for good: {held.reason}") from None
                _tell("regained", held, json)

    with _until_interrupted():
        asyncio.run(hold())


def release(
    group: Group,
    /,
    *resources: Annotated[str, Parameter(help="Partitions, as in orders-0, or any other names.")],
    evict: Annotated[bool, Flag, Parameter(help="Take it away from whoever has it.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    _check(resources)

    async def free() -> dict[str, int]:
        async with administrator(bootstrap) as admin:
            known = own_list.by_key(await own_list.gather(admin, [group]))
        freed: dict[str, int] = {}
        for resource in resources:
            row = known.get((group, resource))
            if row is None:
                raise Failure(f"{resource} of group {group} has no owner, and none is remembered")
            number = int(row["generation"]) if evict and row["owner"] is not None else None
            async with own.claim(bootstrap, group, resource, number, client_id="headrace-cli") as held:
                freed[resource] = held.generation
        return freed

    freed = asyncio.run(free())
    if json:
        output.document({"group": group, "released": freed})
    else:
        for resource, number in freed.items():
            output.line(f"{resource} of group {group} is free; the last generation is {number}")


def _check(resources: tuple[str, ...]) -> None:
    if not resources or not all(resources) or len(set(resources)) < len(resources):
        raise UsageError("name at least one resource, and each once: a partition, as in orders-0, or any other name")


def _tell(event: str, held: own.Ownership, as_json: bool) -> None:
    generations: Mapping[str, int] = held.generations
    if as_json:
        document = {"event": event, "group": held.group, "client_id": held.client_id, "generations": dict(generations)}
        more = {"reason": held.reason} if event == "lost" else {"fence_offsets": dict(held.fence_offsets)}
        output.document({**document, **more})
    elif event == "lost":
        output.line(f"lost: {held.reason}")
    else:
        for resource, generation in generations.items():
            fence = held.fence_offsets[resource]
            before = f", everything before offset {fence} is of earlier owners" if fence >= 0 else ""
            output.line(f"{event}: {resource} of group {held.group} at generation {generation}{before}")
    output.flush()


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C, or SIGTERM, is how this command ends when all is well."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
