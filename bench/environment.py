"""Where and on what a benchmark ran: for the heading of its table and its line of JSON."""

import os
import platform
import subprocess
from pathlib import Path


def commit() -> str:
    """Commit of the checkout that this file lies in, with "+" if files differ from it; "unknown" outside of one."""
    git = ["git", "-C", str(Path(__file__).parent)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changes = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True,
                             check=False)
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "") if head.returncode == 0 else "unknown"


def machine() -> str:
    """The processor's name and how many logical CPUs this process may use."""
    n_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {n_cpus} CPUs"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
