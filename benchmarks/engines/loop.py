"""The commands of `tfrank-sel-engine` with a node of OpenSearch and its plugin Learning to Rank.

    python -m benchmarks.engines.loop --opensearch CHECKOUT [--build build/search] [--java HOME]

The node is that of Maven's repository; the plugin is compiled from a checkout of
https://github.com/opensearch-project/opensearch-learning-to-rank-base, without RankLib and derived
features, whose libraries that repository has not. 300 documents, of which a third lacks a number,
and 900 judgments of two judges become a run and its trees, which the node must score as Keras does.
Prints the seconds of each command. Needs Maven and a JDK of 21 or later.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.engines.__main__ import HERE, PLUGIN, pom
from tfrank_sel.search_engines.connection import Connection

NUMBER = "3.5.0"  # the last one whose common-utils is in Maven's repository
JARS = [
    f"org.opensearch:opensearch:{NUMBER}",
    f"org.opensearch.plugin:transport-netty4-client:{NUMBER}",
    f"org.opensearch:common-utils:{NUMBER}.0",
    "org.apache.lucene:lucene-expressions:10.3.2",
    "org.apache.logging.log4j:log4j-core:2.25.3",
    "com.github.spullara.mustache.java:compiler:0.9.14",
]
RANKLIB = "com/o19s/es/ltr/ranker/ranklib"
SCRIPTING = """package com.o19s.es.ltr.utils;

public class Scripting {
  public static Object compile(String source) {
    throw new UnsupportedOperationException(source);
  }
}
"""
WORDS = ["red", "blue", "green", "shoe", "shirt", "hat", "old", "new", "big", "small"]


def compiled(build: pathlib.Path, home: pathlib.Path, checkout: pathlib.Path) -> str:
    """Compiles the plugin and the node, once; returns the class path."""
    folder = build.resolve() / f"node-{NUMBER}"
    classes, jars, sources = (folder / name for name in ("classes", "jars", "sources"))
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        sources.mkdir(parents=True)
        (folder / "pom.xml").write_text(pom(JARS))
        maven = ["mvn", "--batch-mode", "--quiet", "--file", folder / "pom.xml"]
        copied = ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        subprocess.run([*maven, "dependency:copy-dependencies", *copied], check=True)
        archive = ["git", "-C", checkout, "archive", f"{NUMBER}.0", "src/main"]
        stored = subprocess.run(archive, check=True, capture_output=True)
        subprocess.run(["tar", "x", "-C", sources], input=stored.stdout, check=True)
        code = sources / PLUGIN
        for name in ("RanklibModelParser", "DenseProgramaticDataPoint", "RanklibRanker"):
            (code / RANKLIB / f"{name}.java").unlink()
        for name in ("com/o19s/es/ltr/LtrQueryParserPlugin", f"{RANKLIB}/RankLibScriptEngine"):
            path = code / f"{name}.java"
            text = path.read_text().replace("RanklibModelParser.TYPE", '"model/ranklib"')
            path.write_text(re.sub(r"(?m)^.*(RanklibModelParser|RankerFactory|ciir).*\n", "", text))
        (code / "com/o19s/es/ltr/utils/Scripting.java").write_text(SCRIPTING)
        where = ["-nowarn", "-proc:none", "-d", classes, "-cp", f"{jars}/*"]
        programs = [HERE / "Node.java", *code.rglob("*.java")]
        subprocess.run([home / "bin/javac", *where, *programs], check=True)
        shutil.copytree(sources / "src/main/resources", classes, dirs_exist_ok=True)
        (folder / "done").touch()
    return f"{classes}:{jars}/*"


@contextlib.contextmanager
def serving(home: pathlib.Path, path: str, folder: pathlib.Path) -> Iterator[str]:
    """Starts a node; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    vectors = ["--add-modules", "jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED"]
    command = [home / "bin/java", "-Xmx1g", *vectors, "-cp", path, "Ranking", folder, str(port)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes) as node:
        if "started\n" not in iter(node.stdout.readline, ""):  # type: ignore[union-attr]
            raise SystemExit("the node did not start")
        yield f"http://127.0.0.1:{port}"


def index(url: str, random: np.random.Generator) -> dict[str, dict[str, Any]]:
    """Fills an index; returns its documents."""
    texts = {x: {"type": "text"} for x in ("title", "body")}
    numbers = {x: {"type": "float"} for x in ("price", "age")}
    base, _, name = url.rpartition("/")
    send = Connection(base).send
    send("PUT", name, dict, {"mappings": {"properties": texts | numbers}})
    documents: dict[str, dict[str, Any]] = {}
    for number in range(300):
        document: dict[str, Any] = {x: " ".join(random.choice(WORDS, 4)) for x in texts}
        present = [x for x in numbers if random.random() < 0.67]
        document |= {x: round(float(random.gamma(2.0)), 3) for x in present}
        documents[str(number)] = document
        send("PUT", f"{name}/_doc/{number}", dict, document)
    send("POST", f"{name}/_refresh", dict)
    return documents


def book(documents: dict[str, dict[str, Any]], random: np.random.Generator) -> str:
    """A book of Quepid."""
    lines = ["query,docid,Ann,Ben"]
    for query in (f"{x} {y}" for x in WORDS for y in WORDS if x < y):
        for identifier in random.choice(list(documents), 20, replace=False):
            document = documents[identifier]
            grade = sum(x in document["title"] for x in query.split()) + ("price" in document)
            second = grade if random.random() < 0.5 else ""
            lines.append(f"{query},{identifier},{grade},{second}")
    return "\n".join(lines) + "\n"


def run(url: str, folder: pathlib.Path) -> Iterator[tuple[str, float, str]]:
    """Runs the commands; yields each with its seconds and its last line."""
    random = np.random.default_rng(0)
    (folder / "book.csv").write_text(book(index(url, random), random))
    of = f"--engine opensearch --url {url}"
    features = "--text title --text body --number price --number age"
    commands = [
        "judgments book.csv --output judged.parquet",
        f"features --engine opensearch {features} --output features.json",
        f"push features.json {of} --features shop",
        f"collect judged.parquet {of} --features shop --output train.parquet",
        "run --data train.parquet --output run",
        f"export run --engine opensearch --version {NUMBER} --missing 1e30 --output ranker.json",
        f"push ranker.json {of} --features shop",
        f"verify train.parquet {of} --name ranker-1 --model ranker.keras --missing 1e30",
    ]
    for command in commands:
        began = time.perf_counter()
        module = (
            "tfrank_sel.pipelines" if command.startswith("run ") else "tfrank_sel.search_engines"
        )
        words = [sys.executable, "-m", module, *command.split()]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{command}: {done.stderr}")
        lines = (done.stdout if command.startswith("verify") else "").splitlines()
        yield command.split()[0], time.perf_counter() - began, "".join(lines[-1:])


def main() -> None:
    """Prints a table of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/search"))
    parser.add_argument("--opensearch", type=pathlib.Path, required=True, help="the checkout")
    home = os.environ.get("JAVA_HOME", "/usr")
    parser.add_argument("--java", type=pathlib.Path, default=pathlib.Path(home), help="the JDK")
    options = parser.parse_args()
    path = compiled(options.build, options.java, options.opensearch.resolve())
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        with serving(options.java, path, folder / "node") as base:
            print("| command | seconds | result |\n|---|---|---|")
            for name, seconds, result in run(f"{base}/items", folder):
                print(f"| `{name}` | {seconds:.1f} | {result} |", flush=True)


if __name__ == "__main__":
    main()
