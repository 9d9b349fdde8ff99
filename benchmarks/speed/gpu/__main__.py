"""Speed on a GPU of losses, top-k, a training step and ALS, compared with JAX and PyTorch.

    python -m benchmarks.speed.gpu lower FOLDER
    python -m benchmarks.speed.gpu run FOLDER
    python -m benchmarks.speed.gpu counts

`lower` needs TensorFlow and no GPU: it writes each function as XLA gets it from TensorFlow for a
GPU (serialized HLO), and `cases.json`, which names their arguments. `run` needs neither TensorFlow
nor `tfrank_sel`, but JAX and NumPy: it compiles the programs by JAX's XLA client for the device
that JAX takes first, and prints a table. Peers in PyTorch, keras-rs (`KERAS_BACKEND=jax`) and Rax
are left out where they are not installed. `counts` needs TensorFlow only: it counts loops, steps
and bytes of the programs in both layouts of `tfrank_sel.ops.layout`.
Tried with JAX 0.10.2 and 0.11.2, PyTorch 2.11.0 and TensorFlow 2.21.0, all on a CPU.

Times are those of the clock, per call: medians of calls in turn, where so many are queued
(`--calls`) that the host's part is hidden, as far as it can be. What TensorFlow's own host adds to
a call is not in them. The columns:

* **theirs / ours**: above 1, ours is faster.
* **floor**: the share of our time that it takes to read all arguments and write all results once,
  at the bandwidth of a copy. Small arrays stay in caches, and may be faster than that.
* **from CPU**: the largest difference of a result from the same program's on the CPU, relative to
  the largest number of that result. TF32 shows here.
"""

import argparse
import pathlib
import re


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    counting = commands.add_parser("counts", help="count loops and steps in the programs")
    counting.add_argument("--only", default="", help="cases whose name matches this")
    for name, about in (("lower", "write the programs"), ("run", "time them on this device")):
        command = commands.add_parser(name, help=about)
        command.add_argument("folder", type=pathlib.Path, help="where the programs are")
    command.add_argument("--rounds", type=int, default=20, help="turns of each function")
    command.add_argument("--calls", type=int, default=20, help="calls that are queued in a turn")
    command.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    if options.command == "lower":
        from benchmarks.speed.gpu import programs

        programs.lower(options.folder, list(programs.programs()))
        return
    if options.command == "counts":
        from benchmarks.speed.gpu import counts, programs

        made = [x for x in programs.programs() if re.search(options.only, x.case.name)]
        for line in counts.lines(made):
            print(line, flush=True)
        return
    from benchmarks.speed.gpu import table

    for line in table.lines(options.folder, options.only, options.rounds, options.calls):
        print(line, flush=True)


if __name__ == "__main__":
    main()
