"""What clients are told to connect to when a node listens everywhere: nobody can connect to "everywhere"."""

import ipaddress
import socket

ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses for documentation, which nobody has. Nothing is sent there."""


def is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def own_host(wildcard: str) -> str:
    """`own_address` as it stands before a port."""
    address = own_address(wildcard)
    return f"[{address}]" if ":" in address else address


def own_address(wildcard: str) -> str:
    """The address from which this machine speaks to others, else its name's, else the loopback's."""
    family = socket.AF_INET6 if ":" in wildcard else socket.AF_INET
    for find in (_outward, _of_name):
        address = find(family)
        if address and not ipaddress.ip_address(address).is_loopback:
            return address
    return "::1" if family == socket.AF_INET6 else "127.0.0.1"


def _outward(family: socket.AddressFamily) -> str:
    """As the system would choose it: connecting a datagram socket sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((ELSEWHERE[family], 9))
            return _without_scope(probe.getsockname()[0])
    except OSError:
        return ""


def _of_name(family: socket.AddressFamily) -> str:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, family)
    except OSError:
        return ""
    return _without_scope(str(found[0][4][0])) if found else ""


def _without_scope(address: str) -> str:
    return address.partition("%")[0]
