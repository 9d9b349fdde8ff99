"""Deployment folders, and the tools that read them."""

import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from tfrank_sel.serving.__main__ import app


def tool(name):
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which(name, path=path)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def deploy(output, base, name="ranker", *others):
    options = {"output": output, "model-name": name, "saved-model-base": base}
    return CliRunner().invoke(
        app, ["deployment", *(f"--{key}={value}" for key, value in options.items()), *others]
    )


def entrypoint(folder):
    text = (folder / "Dockerfile").read_text().replace("\\\n", "")
    return json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M).group(1))


def read(folder, name):
    return yaml.safe_load((folder / name).read_text())


def manifests(folder):
    return {read(folder, path)["kind"]: read(folder, path) for path in kubernetes(folder)}


def kubernetes(folder):
    return [f"kubernetes/{path.name}" for path in (folder / "kubernetes").iterdir()]


def status(address, path):
    connection = http.client.HTTPConnection(address)
    connection.request("GET", path)
    return connection.getresponse().status


def container(folder):
    [found] = manifests(folder)["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found
