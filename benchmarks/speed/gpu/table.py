"""Times of the programs of a folder and of their peers, on the first device of JAX."""

import importlib
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed import rows
from benchmarks.speed.gpu import cases, xla
from benchmarks.speed.interleaved import timings

COLUMNS = (
    "case",
    "µs",
    "million documents/s",
    "peer",
    "µs",
    "theirs / ours",
    "floor",
    "from CPU",
    "compile, s",
)
COPIED = 2**25  # numbers in the array that is copied to measure the bandwidth


def lines(folder: pathlib.Path, only: str, rounds: int, calls: int) -> Iterator[str]:
    """Times the cases whose name contains `only`, and yields the lines of the table."""
    libraries = {
        x: f"benchmarks.speed.gpu.{x.replace('-', '_')}_peers"
        for x in ("jax", "torch", "keras-rs", "rax")
    }
    peers, left_out = rows.installed(
        {x: lambda path=path: importlib.import_module(path) for x, path in libraries.items()}
    )
    call, byte = _floors(rounds, calls)
    yield (
        f"{jax.devices()[0].device_kind}, {', '.join(map(str, peers))}. A call of next to nothing "
        f"takes {rows.digits(1e6 * call)} µs, and a copy moves {rows.digits(1e-9 / byte)} GB/s."
    )
    yield from ("", _line(COLUMNS), "|" + "---|" * len(COLUMNS))
    for case in cases.read(folder):
        if only in case.name:
            yield from _rows(case, (folder / case.file).read_bytes(), peers, byte, rounds, calls)
    yield from ("", *map(str, left_out))


def _rows(
    case: cases.Case,
    hlo: bytes,
    libraries: Mapping[rows.Peer, Any],
    byte: float,
    rounds: int,
    calls: int,
) -> Iterator[str]:
    """Yields a row for each peer of a case; all of them take turns."""
    arguments, [device, *_] = case.arguments(), jax.devices()
    on_device = jax.device_put(arguments, device)
    begin = time.perf_counter()
    executable = xla.load(hlo, device)
    compiling = time.perf_counter() - begin
    results = xla.run(executable, on_device)
    functions = {"ours": xla.queued(executable, on_device, calls)}
    for library, module in libraries.items():
        for name in case.peers:
            if name in module.PEERS:
                functions[f"{name}, {library}"] = module.queued(name, arguments, calls)
    found = {
        name: timing.seconds / calls
        for name, timing in timings(functions, rounds, time.perf_counter).items()
    }
    ours = found.pop("ours")
    floor = byte * sum(x.nbytes for x in (*arguments, *results)) / ours
    [cpu, *_] = jax.devices("cpu")
    apart = "" if device == cpu else f"{difference(results, hlo, arguments):.1g}"
    speed = rows.digits(1e-6 * case.documents / ours)
    for peer, theirs in found.items():
        yield _line(
            (
                case.name,
                rows.digits(1e6 * ours),
                speed,
                peer,
                rows.digits(1e6 * theirs),
                rows.digits(theirs / ours, 2),
                f"{floor:.1%}",
                apart,
                f"{compiling:.1f}",
            )
        )


def difference(results: Sequence[jax.Array], hlo: bytes, arguments: Sequence[np.ndarray]) -> float:
    """The largest difference of results from the CPU's, relative to the largest number of each."""
    [cpu, *_] = jax.devices("cpu")
    exact = xla.run(xla.load(hlo, cpu), jax.device_put(arguments, cpu))
    apart = []
    for x, y in zip(results, exact, strict=True):
        x, y = np.asarray(x, float), np.asarray(y, float)
        apart.append(np.abs(x - y).max() / max(np.abs(y).max(), np.finfo(float).tiny))
    return float(np.max(apart))  # NaN, if there is one


def _floors(rounds: int, calls: int) -> tuple[float, float]:
    """Seconds of a call of next to nothing, and to read or write a byte in a copy."""
    found = {}
    for size in (1, COPIED):
        x = [jnp.zeros(size, jnp.float32)]
        found[size] = xla.queued(xla.jitted(jnp.negative, x), x, calls)
    least, copy = (x.seconds / calls for x in timings(found, rounds, time.perf_counter).values())
    return least, copy / (2 * COPIED * 4)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
