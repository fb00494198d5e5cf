"""This node's IPv4 addresses and TCP ports.

A port is opened for a moment to see if it is free. Between that and the start of the server another run could
find it free, too, so runs mark what they take.
"""

from __future__ import annotations

import array
import errno
import fcntl
import ipaddress
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

SIOCGIFCONF = 0x8912  # netdevice(7)
IFREQ_BYTES = 40  # struct ifreq on 64-bit Linux: 16 of name, then a sockaddr in a union of 24
MAX_INTERFACES = 1024
PORT_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_taken: Dict[int, socket.socket] = {}  # by port; open for as long as this process lives
LINK_LOCAL = ipaddress.ip_network("169.254.0.0/16")


@dataclass(frozen=True)
class Address:
    """One IPv4 address and the interface that has it."""

    interface: str
    ip: str


def addresses() -> Tuple[Address, ...]:
    """Every IPv4 address of an interface that is up, in the kernel's order. Source: netdevice(7)."""
    buffer = array.array("B", bytes(IFREQ_BYTES * MAX_INTERFACES))
    start, size = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock.fileno(), SIOCGIFCONF, struct.pack("iL", size, start))
    used = struct.unpack("iL", answer)[0]
    data = buffer.tobytes()[:used]
    result = []
    for offset in range(0, used, IFREQ_BYTES):
        name = data[offset : offset + 16].split(b"\0", 1)[0].decode()
        result.append(Address(name.split(":")[0], socket.inet_ntoa(data[offset + 20 : offset + 24])))
    return tuple(result)


def link_local(ip: str) -> bool:
    """169.254/16 is what an interface gives itself when nothing configured it: never a way to a node."""
    return ipaddress.ip_address(ip) in LINK_LOCAL


def choose(have: Sequence[Address], interface: str, subnet: str, reached: str) -> Optional[str]:
    """The address that other nodes shall use, or None when no interface fits.

    `reached` is this node's end of the connection between the agents: the address that is known to
    work when the site profile names neither an interface nor a subnet. Pure.
    """
    usable = [address for address in have if not link_local(address.ip)]
    if interface:
        usable = [address for address in usable if address.interface == interface]
    if subnet:
        network = ipaddress.ip_network(subnet, strict=False)
        usable = [address for address in usable if ipaddress.ip_address(address.ip) in network]
    if not interface and not subnet:
        return reached if reached and not link_local(reached) else None
    ips = [address.ip for address in usable]
    return reached if reached in ips else (ips[0] if ips else None)


def socket_interfaces(have: Sequence[Address], ip: str, configured: bool) -> Dict[str, str]:
    """Variables that keep collectives on the interface of `ip`. Pure; empty when no interface has it.

    Gloo takes the address that the host's own name resolves to, which is 127.0.0.1 in many images and
    /etc/hosts: two nodes then wait for each other in vain. TensorPipe does the same. NCCL looks at the
    interfaces itself: its variable is set only where the site profile names one (`configured`).
    Source: torch.distributed, "Common environment variables" (2.x); NCCL user guide, NCCL_SOCKET_IFNAME.
    """
    name = next((address.interface for address in have if address.ip == ip), "")
    names = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", *(("NCCL_SOCKET_IFNAME",) if configured else ()))
    return dict.fromkeys(names, name) if name else {}


def describe(have: Sequence[Address]) -> str:
    return ", ".join(f"{address.interface} {address.ip}" for address in have) or "no IPv4 address at all"


def ephemeral_range() -> Tuple[int, int]:
    """The ports that the kernel gives to outgoing connections, inclusive. Source: ip-sysctl.rst."""
    try:
        low, high = PORT_RANGE_FILE.read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32768, 60999  # Linux' default


def port_free(port: int) -> bool:
    """Whether a server could listen on `port` on all addresses now.

    Raises: OSError for another reason than a port in use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def take_port(port: int) -> bool:
    """Whether `port` is free and now this process's, until it ends, among all runs that share the ports.

    The mark is an abstract Unix socket: its name is known in the whole network namespace, as the port is,
    whatever files and users its processes see, and the kernel frees it (unix(7)).
    Raises: OSError for another reason than a port in use.
    """
    if port in _taken:
        return True
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mark.bind(b"\0jobspec-port-%d" % port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            mark.close()
            return False
        # A sandbox without such sockets: the port counts as ours unmarked.
    if port_free(port):
        _taken[port] = mark
        return True
    mark.close()
    return False


def take_ports(first: int, last: int, count: int, offset: int = 0) -> List[int]:
    """Up to `count` ports of `first..last` for this process, looked for from `offset` on, wrapping around."""
    size = last - first + 1
    ports: List[int] = []
    for step in range(size):
        port = first + (offset + step) % size
        if take_port(port):
            ports.append(port)
            if len(ports) == count:
                break
    return ports
