"""What runs, by the kernel's /proc: processes that vanish while one looks are no error."""

import contextlib
import time
from pathlib import Path

VANISHED = (FileNotFoundError, ProcessLookupError)


def is_gone(pid):
    """Whether a process has ended; a zombie that nobody has asked about counts."""
    with contextlib.suppress(*VANISHED):
        return _stat(Path(f"/proc/{pid}"))[0] == "Z"
    return True


def children_of(pid):
    """Processes that a process started, by any of its threads."""
    with contextlib.suppress(*VANISHED):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return []


def group_members(group):
    """Processes of a process group, zombies left out."""
    members = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(*VANISHED):
            state, _, found = _stat(entry)[:3]
            if int(found) == group and state != "Z":
                members.append(int(entry.name))
    return members


def workers_of(group):
    """Those of a process group that multiprocessing spawned."""
    return [pid for pid in group_members(group) if b"spawn_main" in command_line(pid)]


def command_line(pid):
    """Words with zero bytes between them; none if the process is gone."""
    with contextlib.suppress(*VANISHED):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def wait_until_gone(group, seconds=30.0):
    """Members of a process group that are still there after so long: enough for a busy machine to end imports."""
    deadline = time.monotonic() + seconds
    while group_members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    return group_members(group)


def _stat(entry):
    """State, parent, group, ...: the fields after the name, which may hold spaces and brackets."""
    return (entry / "stat").read_text().rsplit(")", 1)[1].split()
