"""What happens to the process of one client: connections break or fall silent, it is paused, or it is killed."""

import asyncio
from random import Random

from headrace.sim.loop import DEAD, Process
from headrace.sim.world import World

PACE_S = 1.5
KINDS = ("nothing", "nothing", "reset", "reset", "pause", "pause", "cut", "kill")


async def befall(world: World, process: Process, host: str, life: "asyncio.Task[None]", random: Random) -> None:
    """Until its life is over, by itself or by a death. When the world's trouble is over, so is its own."""
    loop, story = world.loop, world.story
    while not life.done():
        await asyncio.sleep(random.expovariate(1 / PACE_S))
        kind, seconds = random.choice(KINDS), random.choice((0.1, 1.0, 4.0, 7.0)) * random.uniform(0.5, 1.5)
        if life.done() or kind == "nothing":
            continue
        node = random.choice(world.nodes).host
        if kind == "reset":
            story.tell(host, f"loses its connections to {node}")
            world.network.reset(host, node)
        elif kind == "pause":
            story.tell(host, f"is paused, for {seconds:.1f} s")
            loop.pause(process)
            await asyncio.sleep(seconds)
            loop.resume(process)
        elif kind == "cut":
            story.tell(host, f"is cut off from {node}, for {seconds:.1f} s")
            ways = ((host, node), (node, host))
            for way in ways:
                world.network.cut(*way)
            await asyncio.sleep(seconds)
            for way in ways:
                world.network.heal(*way)
        else:
            story.tell(host, "is killed")
            loop.kill(process)
        if process.state == DEAD:
            return
    await life
