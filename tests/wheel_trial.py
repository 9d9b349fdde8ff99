"""Runs the main job from a wheel in a fresh environment, beside folders that hid packages once.

python tests/wheel_trial.py
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
        subprocess.run([*build, ROOT], check=True, stdout=subprocess.DEVNULL)
        [wheel] = folder.glob("*.whl")
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--python", sys.executable, folder / "env"], check=True)
        install = [*uv, "pip", "install", "-q", "--python", folder / "env" / "bin" / "python"]
        subprocess.run([*install, f"{wheel}[pipelines,serving]"], check=True)
        here = folder / "here"
        for hiding in ("pipelines", "serving", "benchmarks"):
            (here / hiding).mkdir(parents=True)
            (here / hiding / "__init__.py").touch()
        job(here, folder / "env" / "bin")
    print("1 passed, 0 failed")


def job(here: pathlib.Path, commands: pathlib.Path) -> None:
    """Trains a ranker on a synthetic set, serves it, and ranks a query."""
    pipelines, serving = commands / "tfrank-sel-pipelines", commands / "tfrank-sel-serving"
    subprocess.run([pipelines, "run", "--output", "runs/1", "--epochs", "3"], cwd=here, check=True)
    serve = [serving, "serve", "--model-base-path", "runs/1/serving/ranker"]
    server = subprocess.Popen(
        [*serve, "--grpc-port", "0", "--rest-port", "0"],
        cwd=here,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        ready = server.stdout.readline()
        assert ready.startswith("Serving ranker: gRPC "), ready
        address = ready.split()[3].rstrip(",")
        rank = [serving, "rank", "--file", "runs/1/export/one_query.txt", "--address", address]
        subprocess.run(rank, cwd=here, check=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
