"""Memory of this process, as Linux counts it."""

import pathlib

_PROCESS = pathlib.Path("/proc/self")


def resident() -> float:
    """Returns the resident memory, in MiB."""
    return _mebibytes("VmRSS")


def start_peak() -> None:
    """Resets the peak to the resident memory of now."""
    (_PROCESS / "clear_refs").write_text("5")


def peak() -> float:
    """Returns the largest resident memory since the last `start_peak`, in MiB."""
    return _mebibytes("VmHWM")


def _mebibytes(name: str) -> float:
    status = (_PROCESS / "status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(name)).split()[1]) / 1024
