"""Ports for the processes that tests start."""

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Return unused ports below those that systems give to outgoing connections, which could take one meanwhile."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(10_000, 32_768), 1_000):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError("this machine has no free port between 10000 and 32767")
