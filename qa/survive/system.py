"""Disk errors of the real system: calls that fail in the kernel (strace), and a full file system (tmpfs).

What the failing disk of `failing.py` plays is confirmed here where the machine allows it: strace has to be
there and to be allowed, and so has a mount of one's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])

Confirmed = tuple[int, list[str], str]  # cases, what went wrong, why there are none
FAULTS = [  # which call, its error, the how manieth
    *(("fsync", error, at) for error, at in zip(["EIO", "ENOSPC", "EDQUOT", "EIO"] * 2, range(1, 8))),
    *(("write", error, at) for error, at in zip(["ENOSPC", "EIO", "EDQUOT", "EINTR"], range(1, 5))),
    *(("rename", "EIO", 1), ("rename", "ENOSPC", 1), ("rename", "EIO", 2), ("mkdir", "ENOSPC", 1)),
    *(
        ("mkdir", "EROFS", 1),
        ("unlink", "EIO", 1),
        ("unlink", "EIO", 3),
        ("rmdir", "EIO", 1),
        ("mkdir", "EIO", 1),
    ),
]


def traced(place: Path) -> Confirmed:
    """A child saves while strace makes one of its calls fail."""
    if shutil.which("strace") is None:
        return 0, [], "there is no strace"
    wrong, n = list[str](), 0
    for call, error, at in FAULTS:
        run = place / f"{call}-{error}-{at}"
        found = with_fault(run, f"{call}:error={error}:when={at}")
        if found is None:
            return n, wrong, "strace may not trace here"
        n += 1
        wrong += [f"strace, {call} number {at} gives {error}: {found}"] if found else []
    return n, wrong, ""


def with_fault(run: Path, inject: str) -> str | None:
    """What is wrong after a save with a fault; None where strace does not work."""
    from qa.survive.failing import begun, judged, save

    run.parent.mkdir(exist_ok=True)
    begun(run)
    said = run.with_suffix(".said")
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)  # until strace is there
        code = 70
        try:
            text = save(run)
            code = int(bool(text))
            said.write_text(text)
        finally:
            os._exit(code)
    os.waitpid(child, os.WUNTRACED)
    log = run.with_suffix(".strace")
    faults = ["-e", f"trace={inject.split(':')[0]}", "-e", f"inject={inject}"]
    strace = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", str(log), *faults, "-p", str(child)], stderr=subprocess.DEVNULL
    )
    there = is_traced(child, strace)
    os.kill(child, signal.SIGCONT)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    strace.wait()
    if not there:
        return None
    if "INJECTED" not in log.read_text():
        return f"no such call: {log.read_text()[-300:]}"
    if code not in (0, 1):
        return f"ended with {code}"
    text = said.read_text() if code else ""
    if text and ":error=EINTR" in inject:
        return f"did not survive: {text}"
    return judged(run, text)


def is_traced(child: int, strace: subprocess.Popen[bytes]) -> bool:
    while strace.poll() is None:
        if "TracerPid:\t0\n" not in Path(f"/proc/{child}/status").read_text():
            return True
        time.sleep(0.01)
    return False


def full(place: Path) -> Confirmed:
    """A process with a mount of its own, so that nobody else sees it."""
    if shutil.which("unshare") is None:
        return 0, [], "there is no unshare"
    place.mkdir()
    command = ["unshare", "--mount", "--map-root-user", sys.executable, __file__, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        return 0, [], "a tmpfs may not be mounted here"
    if done.returncode:
        return 1, [f"full tmpfs: {done.stderr[-500:]}"], ""
    lines = done.stdout.splitlines()
    return len(lines), [f"full tmpfs, {line}" for line in lines if not line.endswith(": ")], ""


def fill(place: Path) -> None:
    """In that process: saves with so many pages left, then with so many names; a line for each."""
    from qa.survive.failing import begun, judged, save

    for number, left in enumerate([*range(5), *range(5)]):
        names = number >= 5
        small = f"size=1m,nr_inodes={20 + left}" if names else "size=1m"
        mount = ["mount", "-t", "tmpfs", "-o", small, "none", str(place)]
        if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
            sys.exit(3)
        run = place / "run"
        begun(run)
        room = os.statvfs(place)
        if names:
            fillers = [place / f"filler-{each}" for each in range(room.f_ffree - left)]
        else:
            fillers = [place / "filler"]
        for filler in fillers:
            filler.write_bytes(bytes(0 if names else (room.f_bavail - left) * room.f_bsize))
        said = save(run)
        for filler in fillers:
            filler.unlink()
        found = judged(run, said)
        if left < 4 and "the disk is full" not in said:
            found = f"said {said!r}"
        print(f"{left} {'names' if names else 'pages'} left: {found}")
        subprocess.run(["umount", str(place)], check=True)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
