"""Says which address this node's name has, for programs that announce it to other nodes; exit code 3 if none.

Mooncake's clients announce what `gethostbyname(hostname)` gives. A loopback address (Debian's 127.0.1.1) or a
link-local one (169.254/16, a management port over USB) is taken without a word, and peers then time out.
Standard library, Python 3.9.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Sequence

BLOCKED = 3


def problem(address: str, nodes: int) -> str:
    """Why other nodes cannot reach `address`, or nothing. One node alone may use loopback. Pure."""
    parsed = ipaddress.ip_address(address)
    if parsed.is_link_local:
        return f"`{address}` is link-local: no other machine can reach it"
    if parsed.is_loopback and nodes > 1:
        return f"`{address}` reaches this node alone, and {nodes} nodes take part"
    return ""


def main(argv: Sequence[str]) -> int:
    """`NODES`: how many nodes take part."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
        wrong = problem(address, int(argv[0]))
    except OSError as cause:
        address, wrong = "", f"the name has no address: {cause}"
    if wrong:
        print(
            f"jobspec: blocked: node {name} would announce an address that does not work: {wrong};"
            " give its name the address of a routable interface (/etc/hosts or DNS)",
            file=sys.stderr,
        )
        return BLOCKED
    print(f"jobspec: node {name} announces {address}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
