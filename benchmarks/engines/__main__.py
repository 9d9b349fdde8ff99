"""Files of `export.search_engine`, scored by the engines' own classes.

    python -m benchmarks.engines --build build/search [--opensearch CHECKOUT] [--o19s CHECKOUT]
        [--solr CHECKOUT] [--java HOME] [--documents 1500] [--keep tests/search_engines/scores.json]

Each version of an engine parses the file and scores documents by its parser and its trees. Their
classes come from Maven's repository; what it lacks is compiled from a checkout (a clone with tags,
or a bare one) of

    --opensearch  https://github.com/opensearch-project/opensearch-learning-to-rank-base
    --o19s        https://github.com/o19s/elasticsearch-learning-to-rank
    --solr        https://github.com/apache/solr

Versions without their checkout are marked as not run. Needs Maven and a JDK of 21 or later.

Documents lack features, or have values on thresholds and beside them. Trees are random, of 1 to 300
features and up to 60 levels, or of LightGBM and XGBoost, and take a feature that a document lacks
for a missing value or for 0. Scores may differ from the model's by 1e-5, or the file is refused:
all else ends the command with an error. `--keep` writes a small part of the files, documents and
scores, which the tests replay.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import lightgbm
import numpy as np
import xgboost

from tfrank_sel import export, models
from tfrank_sel.models.boosted_trees import ZERO, Forest, Split, Tree
from tfrank_sel.search_engines.trees import VERSIONS

HERE = pathlib.Path(__file__).parent
TOLERANCE = 1e-5
TRAINED_WITH = (math.nan, 0.0, 1e30)  # where a document lacks a feature
PLUGIN = "src/main/java"


@dataclasses.dataclass
class Version:
    """A version of an engine, and where its classes come from.

    Args:
        engine: As in `export.search_engine`.
        number: The version.
        jars: Maven's artifacts, without those that they depend on if the name ends with `!`.
        program: The class of this folder that scores.
        tag: The tag of the checkout, if some classes are compiled from it.
        sources: Folder of the sources in the checkout.
        arguments: Arguments of the program before the folders.
    """

    engine: str
    number: str
    jars: Sequence[str] = ()
    program: str = "Plugin"
    tag: str = ""
    sources: str = PLUGIN
    arguments: Sequence[str] = ()


def _of_elasticsearch(number: str) -> Version:
    jars = [f"org.elasticsearch:elasticsearch:{number}"]
    jars.append(f"org.elasticsearch.plugin:x-pack-core:{number}!")
    return Version("elasticsearch", number, jars, "Elasticsearch")


def _of_o19s(number: str, server: str) -> Version:
    jars = [f"org.elasticsearch:elasticsearch:{server}"]
    return Version("o19s", number, jars, tag=f"v{number}-es{server}")


TRIED = [
    Version("solr", "8.11.4", ["org.apache.solr:solr-ltr:8.11.4"], "Solr", arguments=["0"]),
    Version(
        "solr",
        "9.7.0",
        ["org.apache.solr:solr-core:9.7.0"],
        "Solr",
        "releases/solr/9.7.0",
        "solr/modules/ltr/src/java",
        ["NaN"],
    ),
    *(
        Version("opensearch", x, [f"org.opensearch:opensearch:{x}"], tag=f"{x}.0")
        for x in ("2.19.6", "3.1.0", "3.2.0", "3.7.0", "3.8.0")
    ),
    _of_o19s("1.5.8", "8.9.2"),
    _of_o19s("1.5.10", "8.17.0"),
    _of_o19s("1.5.11", "9.0.1"),
    _of_elasticsearch("8.17.0"),
    _of_elasticsearch("9.0.0"),
    Version("vespa", "8"),
]


@dataclasses.dataclass
class Case:
    """Trees with documents, NaN where a document lacks a feature.

    Args:
        name: What the trees are.
        model: The trees.
        documents: Rows of features.
        missing: What an absent feature was in training.
    """

    name: str
    model: models.BoostedTrees
    documents: np.ndarray
    missing: float

    @property
    def scores(self) -> np.ndarray:
        """The scores of the model."""
        lacking = np.isnan(self.documents)
        x = np.where(lacking, np.float32(self.missing), self.documents)
        scores: np.ndarray = self.model(x[np.newaxis]).numpy()[0]
        return scores

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return [f"f{number}" for number in range(self.documents.shape[1])]


def random_trees(
    random: np.random.Generator, features: int, count: int, depth: int, near_0: bool = False
) -> Forest:
    """Trees of random splits; `near_0` has thresholds of all sizes."""

    def threshold() -> float:
        size = 10.0 ** random.uniform(-14, 3) * random.choice([-1.0, 1.0])
        value = random.choice([0.0, ZERO, size]) if near_0 else 30.0 * random.normal()
        return float(np.float32(value))

    def tree(level: int) -> Tree:
        if level == 0 or random.random() < 0.1:
            return float(np.float32(0.1 * random.normal()))
        feature, missing_left = int(random.integers(features)), bool(random.random() < 0.5)
        return Split(feature, threshold(), missing_left, tree(level - 1), tree(level - 1))

    return Forest([tree(depth) for _ in range(count)], features)


def deep_trees(random: np.random.Generator, levels: int) -> Forest:
    """Trees that are chains of splits, of which one sends all values to the left."""
    trees: list[Tree] = []
    for number in range(3):
        tree: Tree = 0.0
        for level in range(levels):
            sides = [tree, float(np.float32(0.1 * random.normal()))]
            missing_left = bool(random.random() < 0.5)
            tree = Split(number, float(level), missing_left, *sides[:: random.choice([-1, 1])])
        trees.append(Split(number, float(np.finfo(np.float32).max), False, tree, 0.5))
    return Forest(trees, 3)


def documents(random: np.random.Generator, forest: Forest, count: int) -> np.ndarray:
    """Rows of values, a third of them on a threshold or beside it, and a third lacking."""
    by_feature: list[list[float]] = [[0.0] for _ in range(forest.num_features)]

    def collect(tree: Tree) -> None:
        if isinstance(tree, Split):
            by_feature[tree.feature].append(tree.threshold)
            collect(tree.left)
            collect(tree.right)

    for tree in forest.trees:
        collect(tree)
    x = (30.0 * random.normal(size=[count, forest.num_features])).astype(np.float32)
    kind = random.integers(6, size=x.shape)
    for feature, thresholds in enumerate(by_feature):
        on = random.choice(np.array(thresholds, np.float32), size=count)
        with np.errstate(over="ignore"):
            beside = np.nextafter(on, np.float32(random.choice([-np.inf, np.inf])))
        near = np.where(kind[:, feature] == 0, on, beside)
        x[:, feature] = np.where(kind[:, feature] < 2, near, x[:, feature])
    # what models take for 0, and beyond float32
    x[(abs(x) <= ZERO) | np.isinf(x)] = 0.0
    x[kind >= 4] = np.nan
    x[0], x[1] = np.nan, 0.0
    return x


def trained(random: np.random.Generator, missing: float) -> Iterator[tuple[str, Any]]:
    """Models of LightGBM and XGBoost of features that are often lacking."""
    x = random.gamma(2.0, size=[4000, 20]).round(2)
    y = x[:, 0] - x[:, 1] * x[:, 2] + x[:, 3:].max(axis=1)
    y = (y - y.mean()) / y.std()
    x[random.random(x.shape) < 0.3] = missing
    options = {"objective": "regression", "num_leaves": 31, "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(x, y), 50)
    yield "LightGBM", models.BoostedTrees.from_lightgbm(booster)
    matrix = xgboost.DMatrix(x, y)
    other = xgboost.train({"max_depth": 6, "nthread": 1}, matrix, 50)
    yield "XGBoost", models.BoostedTrees.from_xgboost(other)


def cases(count: int) -> Iterator[Case]:
    """All cases; those named "small" are kept."""
    for missing in TRAINED_WITH:
        random = np.random.default_rng(0)
        forests = {
            "small": random_trees(random, 4, 4, 3, near_0=True),
            "1 feature": random_trees(random, 1, 20, 4),
            "20 features": random_trees(random, 20, 50, 6),
            "300 features": random_trees(random, 300, 100, 6),
            "60 levels": deep_trees(random, 60),
            "near 0": random_trees(random, 5, 20, 5, near_0=True),
        }
        for name, forest in forests.items():
            rows = documents(random, forest, 40 if name == "small" else count)
            yield Case(name, models.BoostedTrees._of(forest, "trees"), rows, missing)
        for name, model in trained(random, missing):
            yield Case(name, model, documents(random, model.forest(), count), missing)


def file_of(case: Case, version: Version, path: pathlib.Path) -> str:
    """Writes the file for a version; returns why it is refused, or an empty text."""
    features: Any = case.features
    if version.engine == "elasticsearch":
        features = {x: {"function_score": {"field_value_factor": {"field": x}}} for x in features}
    path.unlink(missing_ok=True)
    try:
        export.search_engine(
            case.model, path, version.engine, features, "ranker", version.number, case.missing
        )
    except ValueError as error:
        return str(error)
    return ""


class Java:
    """The programs of this folder, compiled for a version.

    Args:
        build: Folder for jars and classes, which are made once.
        home: The JDK.
        checkouts: The checkout of each engine.
    """

    def __init__(
        self, build: pathlib.Path, home: str, checkouts: Mapping[str, pathlib.Path | None]
    ) -> None:
        self.build = build.resolve()
        self.bin = pathlib.Path(home) / "bin"
        self.checkouts = checkouts

    def has(self, version: Version) -> bool:
        """Whether the classes of a version can be had."""
        return bool(version.jars) and (
            not version.tag or self.checkouts[version.engine] is not None
        )

    def run(self, version: Version, folders: Sequence[pathlib.Path]) -> None:
        """Scores the documents of folders."""
        folder = self.build / f"{version.engine}-{version.number}"
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            self._compile(version, folder)
            (folder / "done").touch()
        path = f"{folder / 'classes'}:{folder / 'jars'}/*"
        command = [self.bin / "java", "-Xss64m", "-cp", path, version.program, *version.arguments]
        subprocess.run([*command, *folders], check=True, stderr=subprocess.PIPE, text=True)

    def _compile(self, version: Version, folder: pathlib.Path) -> None:
        (folder / "jars").mkdir(parents=True)
        (folder / "pom.xml").write_text(pom(version.jars))
        maven = ["mvn", "--batch-mode", "--quiet", "--file", folder / "pom.xml"]
        copied = ["-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}"]
        subprocess.run([*maven, "dependency:copy-dependencies", *copied], check=True)
        sources = folder / "sources"
        sources.mkdir()
        if version.tag:
            archive = ["git", "-C", str(self.checkouts[version.engine]), "archive", version.tag]
            stored = subprocess.run([*archive, version.sources], check=True, capture_output=True)
            subprocess.run(["tar", "x", "-C", sources], input=stored.stdout, check=True)
        programs = [HERE / "Documents.java", HERE / f"{version.program}.java"]
        where = ["-d", folder / "classes", "-cp", f"{folder / 'jars'}/*"]
        where += ["-sourcepath", sources / version.sources]
        subprocess.run([self.bin / "javac", "-nowarn", *where, *programs], check=True)


def pom(jars: Sequence[str]) -> str:
    """A project of Maven with jars, written as those of `Version`."""
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    dependencies = ""
    for jar in jars:
        group, artifact, number = jar.rstrip("!").split(":")
        alone = f"<exclusions>{every}</exclusions>" if jar.endswith("!") else ""
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{number}</version>{alone}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tfrank-sel</groupId><artifactId>engine</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def scored(java: Java, version: Version, stored: Mapping[pathlib.Path, Case]) -> list[np.ndarray]:
    """The scores by the version's own classes for the files of folders."""
    for folder, case in stored.items():
        (folder / "features.txt").write_text("\n".join(case.features))
        (folder / "documents.bin").write_bytes(case.documents.astype(">f4").tobytes())
        if version.program == "Plugin":  # whose parser takes the definition alone
            body = json.loads((folder / "model.json").read_text())
            (folder / "model.json").write_text(body["model"]["model"]["definition"])
    java.run(version, list(stored))
    return [np.fromfile(folder / "scores.bin", ">f4") for folder in stored]


@dataclasses.dataclass
class Outcome:
    """What a version did with the cases of one kind of training.

    Args:
        documents: Number of documents that it scored.
        difference: The largest difference to the model's scores.
        refused: The cases whose file was refused, with the reason.
    """

    documents: int = 0
    difference: float = 0.0
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        if not self.documents:
            return "refused"
        same = f"same: {self.documents:,}, {self.difference:.0e}"
        return same + (f"; {', '.join(self.refused)}: refused" if self.refused else "")


def tried(
    java: Java, version: Version, trials: Sequence[Case], kept: list[Any]
) -> Mapping[str, Outcome]:
    """Outcomes of a version for each way of training, and its small cases."""
    outcomes = {str(missing): Outcome() for missing in TRAINED_WITH}
    with tempfile.TemporaryDirectory() as scratch:
        stored = {}
        for number, case in enumerate(trials):
            folder = pathlib.Path(scratch, str(number))
            folder.mkdir()
            refused = file_of(case, version, folder / "model.json")
            if refused:
                outcomes[str(case.missing)].refused[case.name] = refused
            else:
                stored[folder] = case
        files = [json.loads((folder / "model.json").read_text()) for folder in stored]
        for file, case, scores in zip(
            files, stored.values(), scored(java, version, stored), strict=True
        ):
            outcome = outcomes[str(case.missing)]
            outcome.documents += len(scores)
            outcome.difference = max(outcome.difference, float(abs(scores - case.scores).max()))
            if case.name == "small":
                kept.append(_kept(version, case, file, scores))
    return outcomes


def _kept(version: Version, case: Case, file: Any, scores: np.ndarray) -> dict[str, Any]:
    return {
        "engine": version.engine,
        "version": version.number,
        "missing": None if math.isnan(case.missing) else case.missing,
        "file": file,
        "scores": [float(str(x)) for x in scores],
    }


def table(java: Java, trials: Sequence[Case], kept: list[Any]) -> Iterator[str]:
    """The lines of the table, one a version."""
    ways = " | ".join(f"trained with {name}" for name in ("NaN", "0", "1e30"))
    yield f"| engine | version | an absent feature | {ways} | run by |"
    yield "|---|---|---|---|---|---|---|"
    for version in TRIED:
        parts = tuple(map(int, version.number.split(".")))
        *_, behaviour = (row for row in VERSIONS[version.engine] if row.since <= parts)
        way = f"{behaviour.absent.value} (`{behaviour.source}`)"
        if not java.has(version):
            cells = [*["not run"] * len(TRAINED_WITH), "-"]
        else:
            outcomes = tried(java, version, trials, kept)
            cells = [*map(str, outcomes.values()), "its own classes"]
            if max(x.difference for x in outcomes.values()) > TOLERANCE:
                raise SystemExit(f"{version.engine} {version.number} scores otherwise: {outcomes}")
        yield "| " + " | ".join([version.engine, version.number, way, *cells]) + " |"


def _small(trials: Sequence[Case], kept: Sequence[dict[str, Any]]) -> dict[str, Any]:
    case = next(case for case in trials if case.name == "small")
    rows = [[None if math.isnan(x) else float(str(x)) for x in row] for row in case.documents]
    files: list[Any] = []
    for run in kept:
        if run["file"] not in files:
            files.append(run["file"])
    runs = [run | {"file": files.index(run["file"])} for run in kept]
    trees = case.model.forest().trees
    return {"trees": trees, "documents": rows, "files": files, "runs": runs}


def main() -> None:
    """Prints the table, and keeps the small cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/search"))
    for engine in ("opensearch", "o19s", "solr"):
        parser.add_argument(f"--{engine}", type=pathlib.Path, help="a checkout with its tags")
    parser.add_argument("--java", default=os.environ.get("JAVA_HOME", "/usr"), help="the JDK")
    parser.add_argument("--documents", type=int, default=1500, help="documents of each case")
    parser.add_argument("--keep", type=pathlib.Path, help="file for the small cases")
    options = parser.parse_args()
    trials, kept = list(cases(options.documents)), list[Any]()
    for line in table(Java(options.build, options.java, vars(options)), trials, kept):
        print(line, flush=True)
    if options.keep:
        options.keep.write_text(json.dumps(_small(trials, kept)) + "\n")


if __name__ == "__main__":
    main()
