"""Fuzzing of readers, guided by code coverage.

    pip install '.[fuzz]'
    python -m benchmarks.robustness.fuzz letor --seconds 1800

TARGET is letor, elwc, packed, parsing, json or config: see `fuzz_targets` for what must hold. Ends
with status 0 when the time is over; at the first input that breaks a rule, or takes longer than 10
seconds, it prints it and leaves it in the folder CORPUS (by default a new one for each target in
`build/fuzz`), where the inputs found are kept from run to run.
"""

import argparse
import pathlib
import sys

import atheris

import tfrank_sel  # noqa: F401 - TensorFlow and Keras come without instruments: they take long

with atheris.instrument_imports(include=["tfrank_sel.data", "tfrank_sel.serving"]):
    from benchmarks.robustness import fuzz_targets


def main() -> None:
    """Runs one target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=sorted(fuzz_targets.TARGETS))
    parser.add_argument("--seconds", type=int, default=1800)
    parser.add_argument("--corpus", type=pathlib.Path)
    arguments = parser.parse_args()
    corpus = arguments.corpus or pathlib.Path("build/fuzz") / arguments.target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(fuzz_targets.SEEDS[arguments.target]):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={arguments.seconds}",
        "-timeout=10",
        "-max_len=4096",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={corpus.parent / arguments.target}-",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], fuzz_targets.TARGETS[arguments.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
