"""A network namespace of its own for one node: its link to the others can be cut, as that of a machine.

Two links lead out of it. The one named *cluster* is for other nodes and the metadata store; the one named *client*
stays when that is cut, for a client that knows nobody else."""

import os
import subprocess
from types import TracebackType
from typing import Self


class NoNamespaces(RuntimeError):
    """This system or user may not make any; the message says why."""


class Namespace:
    """Addresses: the node has .1 on either link, this side .254."""

    def __init__(self) -> None:
        number = os.getpid() % 200 + 20
        self.name = f"headrace{number}"
        self._links = {"cluster": f"hrc{number}", "client": f"hrt{number}"}
        self._subnets = {"cluster": f"10.231.{number}", "client": f"10.232.{number}"}
        try:
            _ip("netns", "add", self.name)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoNamespaces(f"no network namespace: {getattr(error, 'stderr', error)}") from error
        try:
            _ip("-n", self.name, "link", "set", "lo", "up")
            for kind in self._links:
                self._connect(kind)
        except subprocess.CalledProcessError as error:
            self.close()
            raise NoNamespaces(f"no virtual link: {error.stderr}") from error

    def _connect(self, kind: str) -> None:
        outer, inner, subnet = self._links[kind], f"{self._links[kind]}i", self._subnets[kind]
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        _ip("addr", "add", f"{subnet}.254/24", "dev", outer)
        _ip("link", "set", outer, "up")
        _ip("-n", self.name, "addr", "add", f"{subnet}.1/24", "dev", inner)
        _ip("-n", self.name, "link", "set", inner, "up")

    def inside(self, kind: str) -> str:
        return f"{self._subnets[kind]}.1"

    def outside(self, kind: str) -> str:
        return f"{self._subnets[kind]}.254"

    def command(self, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self) -> None:
        _ip("-n", self.name, "link", "set", f"{self._links['cluster']}i", "down")

    def heal(self) -> None:
        _ip("-n", self.name, "link", "set", f"{self._links['cluster']}i", "up")

    def close(self) -> None:
        for link in self._links.values():
            subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
