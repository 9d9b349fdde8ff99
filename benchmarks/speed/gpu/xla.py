"""Serialized HLO and functions of JAX as executables of JAX's XLA client, which are called alike.

JAX has no public function that takes HLO. The private one is that of jaxlib 0.10.2 and 0.11.2.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxlib import _jax, xla_client

from benchmarks.speed.interleaved import Call

jax.config.update("jax_enable_x64", True)  # or float64 arguments become float32
Executable = Any


def load(hlo: bytes, device: jax.Device) -> Executable:
    """Compiles a serialized `HloModuleProto`."""
    module = _jax.mlir.hlo_to_stablehlo(hlo)
    devices = xla_client.DeviceList((device,))
    return device.client.compile_and_load(module, devices, xla_client.CompileOptions())


def jitted(function: Callable[..., Any], arguments: Sequence[jax.Array]) -> Executable:
    """Compiles a function of JAX."""
    compiled = jax.jit(function, keep_unused=True).lower(*arguments).compile()
    return compiled.runtime_executable()


def run(executable: Executable, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Starts a call, and returns its results."""
    results = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return [array for [array] in results]


def queued(executable: Executable, arguments: Sequence[jax.Array], count: int) -> Call:
    """Makes so many calls of which none waits for the host, and waits for them."""
    return lambda: jax.block_until_ready([run(executable, arguments) for _ in range(count)])
