"""Layout of the site's pages in build/docs: README, guides, tutorials, gallery and reference.

    PYTHONPATH=. python docs/site.py && zensical build

README becomes the overview. The gallery has a thumbnail of each figure of `examples/figures` and of
each picture of `benchmarks.pictures`, which leads to a page with the code that draws it. Each
tutorial is a script of `examples`, run as a notebook: its page has the code and its output. A page
for each command of `docs/evidence` has all its tables. The reference has a sheet of all commands
and configuration keys, a page for each public module, and one with the docstrings of each public
name.
"""

import importlib
import inspect
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jupytext
import nbclient
import nbconvert
import typer
from matplotlib.figure import Figure

from benchmarks import evidence
from benchmarks.pictures import PICTURES
from examples.figures import FIGURES
from tfrank_sel import launch
from tfrank_sel.pipelines.configuration import reference

ROOT = pathlib.Path(__file__).parent.parent
PAGES = ROOT / "build" / "docs"
EXAMPLES = ROOT / "examples"
TUTORIALS = (
    "search",
    "recommend",
    "sequence",
    "scores",
    "preferences",
    "from_tensorflow_ranking",
    "papers",
)
MODULES = (
    "tfrank_sel.estimator",
    "tfrank_sel.losses",
    "tfrank_sel.losses.lambdas",
    "tfrank_sel.metrics",
    "tfrank_sel.metrics.averaging",
    "tfrank_sel.metrics.ties",
    "tfrank_sel.links",
    "tfrank_sel.links.labels",
    "tfrank_sel.models",
    "tfrank_sel.models.als",
    "tfrank_sel.models.als.nearest",
    "tfrank_sel.recommend",
    "tfrank_sel.data",
    "tfrank_sel.data.elwc",
    "tfrank_sel.data.parsing",
    "tfrank_sel.data.formats",
    "tfrank_sel.data.frames",
    "tfrank_sel.data.letor",
    "tfrank_sel.distribution",
    "tfrank_sel.export",
    "tfrank_sel.callbacks",
    "tfrank_sel.plots",
    "tfrank_sel.presets.tfr",
    "tfrank_sel.presets.tfr.losses",
    "tfrank_sel.presets.tfr.metrics",
    "tfrank_sel.presets.tfrs",
    "tfrank_sel.bounds",
    "tfrank_sel.clicks",
    "tfrank_sel.objectives",
    "tfrank_sel.serving.client",
)


def main() -> None:
    """Writes all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        # pages of the repository, such as badges, are none of the site
        text = re.sub(
            r"^\[!.*\n|\[[^]]*\]\(\.\./\.\./[^)]*\),? ?", "", (ROOT / name).read_text(), flags=re.M
        )
        text = text.replace("](docs/", "](")
        (PAGES / name.replace("README", "overview")).write_text(text)
    for name, command in evidence.commands().items():
        (PAGES / "evidence" / f"{name}.md").write_text(evidence_page(name, command))
    for guide in PAGES.glob("*.md"):
        text = guide.read_text().replace("](../README.md", "](overview.md")
        text = re.sub(r"(\]\(evidence/[\w-]+)\.json\)", r"\1.md)", text)
        tutorials = rf"\]\((?:\.\./)?examples/({'|'.join(TUTORIALS)})\.py\)"
        guide.write_text(re.sub(tutorials, r"](tutorials/\1.md)", text))
    with open(PAGES / "gallery.md", "a", encoding="utf-8") as gallery:
        gallery.writelines(
            ['\n<div class="gallery" markdown>\n', *figures(), *pictures(), "</div>\n"]
        )
    (PAGES / "tutorials").mkdir()
    for name in TUTORIALS:
        print(f"Running tutorial {name}", flush=True)
        write_tutorial(name)
    (PAGES / "reference").mkdir()
    (PAGES / "reference" / "commands.md").write_text(commands_page())
    for name in MODULES:
        write_reference(importlib.import_module(name))


def write_tutorial(name: str) -> None:
    """Runs an example as a notebook, and writes it, its code and its page with the output."""
    notebook = jupytext.read(EXAMPLES / f"{name}.py")
    notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith("# ruff: ")]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    pictures = {**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    pictures["PYTHONPATH"] = f"{EXAMPLES}:{ROOT}"
    nbclient.NotebookClient(notebook, timeout=600, coalesce_streams=True).execute(env=pictures)
    for cell in notebook.cells:
        if cell.cell_type == "code":  # without the logs of TensorFlow
            cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]
    page, resources = nbconvert.MarkdownExporter().from_notebook_node(
        notebook, {"output_files_dir": name}
    )
    folder = PAGES / "tutorials"
    for path, content in resources["outputs"].items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    jupytext.write(notebook, folder / f"{name}.ipynb")
    shutil.copy(EXAMPLES / f"{name}.py", folder)
    title, _, rest = page.lstrip().partition("\n")
    files = f"Download: [notebook]({name}.ipynb){{ download }} · [script]({name}.py){{ download }}"
    rest = rest.replace("](../docs/", "](../").replace("![png](", "![Picture that the code draws](")
    (folder / f"{name}.md").write_text(f"{title}\n\n{files}\n{rest}")


def figures() -> Iterator[str]:
    """Draws the figures of the paper, writes a page for each, and yields the thumbnails."""
    (PAGES / "figures").mkdir()
    for name, figure in FIGURES.items():
        print(f"Drawing figure {name}", flush=True)
        drawn = figure.draw()
        drawn.savefig(PAGES / "figures" / f"{name}.png", dpi=200)
        drawn.savefig(PAGES / "figures" / f"{name}_small.png", dpi=80)
        of = f"Figure {name}, after [Selective Matching Losses](https://arxiv.org/abs/2506.04446)"
        command = f"python examples/figures --output figures --only {name}"
        text = f"{figure.caption}\n\n{of}."
        write_figure(name, figure.title, text, f"{name}.png", command, figure.draw)
        yield thumbnail(name, figure.title, f"figures/{name}_small.png")


def pictures() -> Iterator[str]:
    """Writes a page for each picture of the guides, and yields the thumbnails."""
    for name, draw in PICTURES.items():
        title = (inspect.getdoc(draw) or "").partition("\n")[0].rstrip(".").replace("`", "")
        command = f"python -m benchmarks.pictures --output docs --only {name}"
        text = "A picture of the guides."
        write_figure(name, title, text, f"../{name}.png", command, draw)
        yield thumbnail(name, title, f"{name}.png")


def thumbnail(name: str, title: str, picture: str) -> str:
    """Returns a small picture that leads to the page of a figure."""
    return f"\n[![]({picture}){{ loading=lazy }} {title}](figures/{name}.md)\n"


def write_figure(
    name: str, title: str, text: str, picture: str, command: str, draw: Callable[[], Figure]
) -> None:
    """Writes the page of a figure: the picture, and the code that draws it."""
    code = f"```sh\n{command}\n```\n\n```python\n{inspect.getsource(draw)}```"
    where = f"`{draw.__name__}` of `{draw.__module__}`"
    (PAGES / "figures" / f"{name}.md").write_text(
        f"# {title}\n\n![{title}]({picture})\n\n{text}\n\n## Code\n\n"
        f"This command draws it, by {where}:\n\n{code}\n\n[All figures](../gallery.md)\n"
    )


def evidence_page(name: str, command: str) -> str:
    """Returns the page of all tables that a command of `docs/evidence` printed."""
    run = f"python -m benchmarks.evidence run --data DATA --results RESULTS --only {name}"
    tables = ["\n".join(table) for table in evidence.stored(name)]
    return "\n\n".join([f"# `{name}`", f"```sh\n{run}\n```", f"It runs `{command}`.", *tables, ""])


def commands_page() -> str:
    """Returns the sheet of all commands with their options, and of all configuration keys."""
    lines = ["# Commands and keys", "", "All commands take `--help` and `--version`.", ""]
    for command in ("clicks", "engine", "metrics", "pipelines", "serving"):
        [package] = getattr(launch, command).args
        app = importlib.import_module(f"{package}.__main__").app
        name = f"tfrank-sel-{command}"
        lines += [f"## {name}", "", *described(name, typer.main.get_command(app))]
    return "\n".join([*lines, "## Configuration keys", "", reference()])


def described(name: str, command: Any) -> Iterator[str]:
    """Yields a table of the options of a command, and those of its subcommands."""
    if hasattr(command, "commands"):
        for part, own in sorted(command.commands.items()):
            yield from described(f"{name} {part}", own)
        return
    yield from (f"### `{name}`", "", first_sentence(command.help or ""), "")
    shown = [x for x in command.params if not x.hidden and "--help" not in x.opts]
    if shown:
        yield from ("| option | meaning |", "|---|---|")
    for option in shown:
        names = ", ".join(f"`{x}`" for x in option.opts)
        yield f"| {names} | {first_sentence(getattr(option, 'help', None) or '')} |"
    yield ""


def first_sentence(text: str) -> str:
    """Returns the first sentence of a help text, for a cell of a table."""
    sentence = re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]
    return re.sub(r"\[/?[a-z ]+\]", "", sentence).replace("|", "\\|")


def write_reference(module: ModuleType) -> None:
    """Writes the reference of a module: a table of what is in it, and a page for each."""
    title, folder = module.__name__, PAGES / "reference" / module.__name__
    folder.mkdir(parents=True)
    lines = [f"# `{title}`", "", inspect.getdoc(module) or "", ""]
    lines += ["| name | what it is |", "|---|---|"]
    for name in sorted(name for name in dir(module) if is_public(module, name)):
        summary = (inspect.getdoc(getattr(module, name)) or "").partition("\n\n")[0]
        text = " ".join(summary.split()).replace("|", "\\|")
        lines.append(f"| [`{name}`]({title}/{name}.md) | {text} |")
        above = f"[`{title}`](../{title}.md)"
        (folder / f"{name}.md").write_text(f"{above}\n\n::: {title}.{name}\n")
    folder.with_name(f"{title}.md").write_text("\n".join(lines) + "\n")


def is_public(module: ModuleType, name: str) -> bool:
    """Returns whether a name of a module is a class or function of ours for its users."""
    value = getattr(module, name)
    package = module.__name__.partition(".")[0]
    return not name.startswith("_") and callable(value) and value.__module__.startswith(package)


if __name__ == "__main__":
    main()
