"""A small network on one machine: a namespace for each host, and a switch between them that is slow.

Each namespace has a TAP interface; the switch is a thread that passes their frames on after `delay`, each
sender at `rate` bits a second. So it needs root and /dev/net/tun, and no kernel module for `tc netem`.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TUNSETIFF, TAP, NO_INFO = 0x400454CA, 0x0002, 0x1000
MTU = 32_000  # fewer frames for the switch
BROADCAST = b"\xff" * 6
INSIDE = (
    "ip link set lo up; ip link set eth0 address {mac} mtu {mtu}; "
    "ip address add {address}/24 dev eth0; ip link set eth0 up"
)


def missing() -> str:
    """Why there can be no network here, "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists() or not shutil.which("ip"):
        return "needs /dev/net/tun and iproute2"
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "network namespaces are not permitted"


class Network:
    """`count` hosts, 10.77.0.1 and following; as a context. What it makes is removed whatever happens."""

    def __init__(self, count: int, delay: float = 0.02, rate: float = 1e9) -> None:
        self.names = [f"regard-{os.getpid()}-{number}" for number in range(count)]
        self.delay, self.rate = delay, rate
        self.taps: list[int] = []
        self.sent = [0] * count  # bytes
        self.processes: list[subprocess.Popen[str]] = []
        self.ended = threading.Event()
        self.switch = threading.Thread(target=self.pass_on, daemon=True)

    def __enter__(self) -> Network:
        remove_stale()
        self.handler = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            for number, name in enumerate(self.names):
                command("ip", "netns", "add", name)
                self.taps.append(tap := os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
                device = f"rt{os.getpid() % 100000}-{number}"
                fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", device.encode(), TAP | NO_INFO))
                command("ip", "link", "set", device, "netns", name, "name", "eth0")
                inside = INSIDE.format(mac=mac_text(number), mtu=MTU, address=self.address(number))
                command("ip", "netns", "exec", name, "sh", "-ec", inside)
        except BaseException:
            self.close()
            raise
        self.switch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.ended.set()
        if self.switch.is_alive():
            self.switch.join()
        for tap in self.taps:
            os.close(tap)  # the interface goes with it
        for name in self.names:
            remove(name)
        signal.signal(signal.SIGTERM, self.handler)

    def address(self, number: int) -> str:
        return f"10.77.0.{number + 1}"

    def start(
        self, number: int, arguments: Sequence[str], environment: Mapping[str, str], **more: Any
    ) -> subprocess.Popen[str]:
        """A process on a host, whose name is node-N."""
        named = ["unshare", "--uts", "sh", "-c", f'hostname node-{number}; exec "$@"', "sh", *arguments]
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[number], *named], env=dict(environment), text=True, **more
        )
        self.processes.append(process)
        return process

    def link(self, number: int, up: bool) -> None:
        """Pull the cable of a host, or put it back."""
        state = "up" if up else "down"
        command("ip", "netns", "exec", self.names[number], "ip", "link", "set", "eth0", state)

    # --- the switch

    def pass_on(self) -> None:
        queue: list[tuple[float, int, int, bytes]] = []  # when, order, to, frame
        free = [0.0] * len(self.taps)  # when the line of a sender is free again
        numbers, ports = itertools.count(), {tap: number for number, tap in enumerate(self.taps)}
        macs = {mac(number): number for number in ports.values()}
        while not self.ended.is_set():
            wait = min(0.2, max(0.0, queue[0][0] - time.monotonic())) if queue else 0.2
            ready, _, _ = select.select(self.taps, [], [], wait)
            for tap in ready:
                port = ports[tap]
                for _ in range(64):
                    try:
                        frame = os.read(tap, MTU + 64)
                    except OSError:  # nothing more, or the interface is down
                        break
                    now = time.monotonic()
                    free[port] = max(now, free[port]) + 8 * len(frame) / self.rate
                    self.sent[port] += len(frame)
                    others = [each for each in ports.values() if each != port]
                    targets = others if frame[:6] == BROADCAST else [macs.get(frame[:6], port)]
                    for target in targets:
                        if target != port:
                            heapq.heappush(queue, (free[port] + self.delay, next(numbers), target, frame))
            while queue and queue[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(queue)
                try:
                    os.write(self.taps[target], frame)
                except OSError:  # its cable is pulled, or its queue full: the frame is lost
                    continue


def remove(name: str) -> None:
    """A namespace, and what still runs in it."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for pid in pids.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def remove_stale() -> None:
    """Namespaces of a trial that was killed before it could remove them."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for name in re.findall(r"^regard-\d+-\d+", listed, re.MULTILINE):
        if not Path(f"/proc/{name.split('-')[1]}").exists():
            remove(name)


def mac(number: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, number + 1])


def mac_text(number: int) -> str:
    return mac(number).hex(":")


def command(*arguments: str) -> None:
    subprocess.run(arguments, check=True, capture_output=True, text=True)
