"""Flink and Spark on this machine, with what the folders `pipelines/flink` and `spark` hold.

The processes listen on free ports of the loopback address, and end with the engine. Beam's servers
in Java for artifacts, expansion and workers listen on all addresses, which no option changes.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

from tests.ports import free_port

ROOT = pathlib.Path(__file__).parents[2]
JARS = ROOT / "build/engines"
# what the JVM from 16 on keeps from libraries that want it
_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
]


@dataclasses.dataclass
class Engine:
    """An engine that runs.

    Args:
        folder: Of its logs and scratch files.
        started: Its processes, by name.
        configuration: The configuration of a run on it.
    """

    folder: pathlib.Path
    started: dict[str, subprocess.Popen] = dataclasses.field(default_factory=dict)
    configuration: pathlib.Path = pathlib.Path()

    def start(self, name: str, command: Sequence[str], **environment: str) -> subprocess.Popen:
        """Starts a process with a log of its own, and a group so that its children end with it."""
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            self.started[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.started[name]

    def java(self, name: str, jars: str, main: str, *arguments: str, heap="384m", **environment):
        """Starts a class of Java."""
        memory = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = ["java", *memory, *_OPENS, "-cp", jars, main, *arguments]
        return self.start(name, command, **environment)

    def await_port(self, name: str, port: int) -> None:
        """Waits until a process listens."""
        deadline = time.monotonic() + 90
        while socket.socket().connect_ex(("127.0.0.1", port)):
            if self.started[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / f"{name}.log").read_text()[-5000:])
            time.sleep(0.2)

    def serve_jobs(self, engine: str, jars: str, *arguments: str, **environment: str) -> None:
        """Starts the workers in Python and Beam's job server, and writes the configuration."""
        workers, jobs = free_port(), free_port()
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        pool = [sys.executable, str(ROOT / "tests/engines/pool.py"), str(workers)]
        self.start("workers", pool, PATH=path, PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL="3")
        self.java(
            "jobs",
            jars,
            f"org.apache.beam.runners.{engine}.{engine.title()}JobServerDriver",
            *arguments,
            "--job-host=127.0.0.1",
            f"--job-port={jobs}",
            "--artifact-port=0",
            "--expansion-port=0",
            f"--artifacts-dir={self.folder / 'artifacts'}",
            heap="512m",
            **environment,
        )
        self.await_port("workers", workers)
        self.await_port("jobs", jobs)
        told = (ROOT / "pipelines" / engine / "run.toml").read_text()
        self.configuration = self.folder / "run.toml"
        self.configuration.write_text(
            told.replace(":50000", f":{workers}").replace(":8099", f":{jobs}")
        )


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[Engine]:
    """Gives an engine without any process, and ends what it has started."""
    folder.mkdir()
    engine = Engine(folder)
    try:
        yield engine
    finally:
        for process in engine.started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def flink(folder: pathlib.Path) -> Iterator[Engine]:
    """Flink with a JobManager, two TaskManagers and Beam's job server."""
    jars = f"{JARS / 'flink'}/*"
    rest = free_port()
    told = (ROOT / "pipelines/flink/config.yaml").read_text()
    with running(folder) as engine:
        (folder / "config.yaml").write_text(
            f"{told}rest.port: {rest}\njobmanager.rpc.port: {free_port()}\nio.tmp.dirs: {folder}\n"
        )
        main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        engine.java("manager", jars, main, "--configDir", str(folder))
        engine.await_port("manager", rest)
        for name in ("tasks1", "tasks2"):
            start_taskmanager(engine, name)
        await_taskmanagers(rest, 2)
        engine.serve_jobs("flink", jars, f"--flink-master=http://127.0.0.1:{rest}")
        yield engine


def start_taskmanager(engine: Engine, name: str) -> None:
    """Starts a TaskManager of a Flink that runs."""
    main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
    jars = f"{JARS / 'flink'}/*"
    engine.java(name, jars, main, "--configDir", str(engine.folder), heap="640m")


def await_taskmanagers(rest: int, count: int) -> None:
    """Waits until so many TaskManagers are known to the JobManager."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(urllib.error.HTTPError),  # 503: the JobManager has no leader yet
            urllib.request.urlopen(f"http://127.0.0.1:{rest}/taskmanagers") as answer,
        ):
            if answer.read().count(b'"id"') >= count:
                return
        time.sleep(0.2)
    raise RuntimeError(f"expected {count} TaskManagers in time. Received: fewer")


@contextlib.contextmanager
def spark(folder: pathlib.Path) -> Iterator[Engine]:
    """A standalone Spark with a master, a worker and Beam's job server."""
    jars = f"{JARS / 'spark'}/*"
    deploy = "org.apache.spark.deploy"
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with running(folder) as engine:
        (folder / "jars").symlink_to(JARS / "spark")
        known = {
            "SPARK_HOME": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.12",
        }

        def serve(name: str, main: str, *arguments: str) -> None:
            told = ["--host", "127.0.0.1", "--webui-port", str(free_port()), *arguments]
            engine.java(name, jars, f"{deploy}.{name}.{main}", *told, **known)

        serve("master", "Master", "--port", str(port))
        engine.await_port("master", port)
        serve("worker", "Worker", "--cores", "2", "--memory", "1g", master)
        engine.serve_jobs("spark", jars, f"--spark-master-url={master}", **known)
        yield engine
