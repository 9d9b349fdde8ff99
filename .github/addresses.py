"""Writes the address of the repository that publishes into the files that should name it.

    python .github/addresses.py https://github.com/OWNER/NAME v1.2.3

Only the workflow that publishes knows the address and the tag. In the repository itself links are
relative, so that they are right in each copy of it; the page of an index needs whole ones.
"""

import datetime
import pathlib
import re
import sys


def of_readme(text: str, home: str, tag: str) -> str:
    """The text with whole addresses of files at `tag`, and of pages of the repository."""
    text = re.sub(r"\]\(\.\./\.\./", f"]({home}/", text)
    text = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:|#)", rf"\g<1>{home}/raw/{tag}/", text)
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({home}/blob/{tag}/", text)


def of_package(text: str, home: str, tag: str) -> str:
    """The metadata of the package with the addresses that an index shows."""
    _, owner, name = home.rsplit("/", 2)
    urls = {
        "Documentation": f"https://{owner.lower()}.github.io/{name}",
        "Source": home,
        "Changelog": f"{home}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{home}/issues",
        "Questions": f"{home}/discussions",
    }
    lines = "".join(f"\n    {name} = {url}" for name, url in urls.items())
    return text.replace("[metadata]\n", f"[metadata]\nurl = {home}\nproject_urls ={lines}\n", 1)


def of_citation(text: str, home: str, tag: str) -> str:
    """The citation with the place of this version and its day."""
    day = datetime.datetime.now(datetime.UTC).date()
    return f'{text}repository-code: "{home}/tree/{tag}"\nurl: "{home}"\ndate-released: {day}\n'


FILES = {"README.md": of_readme, "setup.cfg": of_package, "CITATION.cff": of_citation}

if __name__ == "__main__":
    [_, home, tag] = sys.argv
    for name, addressed in FILES.items():
        path = pathlib.Path(name)
        path.write_text(
            addressed(path.read_text(encoding="utf-8"), home.rstrip("/"), tag), encoding="utf-8"
        )
