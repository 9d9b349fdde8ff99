"""An API server of Kubernetes on this machine: etcd and kube-apiserver, without nodes.

`make test-kubernetes` builds both from source. They listen on free ports of the loopback address.
"""

import contextlib
import json
import pathlib
import subprocess
import time
from collections.abc import Iterator

from tests.ports import free_port
from tests.serving.certificates import certificate

HERE = pathlib.Path(__file__).parents[2] / "build/kubernetes"
NAMESPACE = "models"


class RefusedError(Exception):
    """What the API server said of a request that it did not take."""


class Cluster:
    """An API server, asked with kubectl.

    Args:
        address: Its URL.
        folder: Of kubectl's cache.
    """

    def __init__(self, address: str, folder: pathlib.Path) -> None:
        self.command = [
            HERE / "kubectl",
            f"--server={address}",
            "--token=admin",
            "--insecure-skip-tls-verify",
            f"--cache-dir={folder / 'cache'}",
            f"--namespace={NAMESPACE}",
        ]

    def ask(self, *arguments: object, given: object = None) -> str:
        """Returns what kubectl prints, warnings included; raises `RefusedError` if it fails."""
        command = list(map(str, [*self.command, *arguments]))
        said = None if given is None else json.dumps(given)
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RefusedError(done.stderr)
        return done.stdout + done.stderr

    def wait(self, *arguments: object, seconds: float = 120) -> None:
        """Asks until the API server takes the request."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.ask(*arguments)
                return
            except RefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[Cluster]:
    """Starts a cluster with the operators' resources and a namespace for restricted pods."""
    etcd, peers, api = (free_port() for _ in range(3))
    (folder / "tokens").write_text("admin,admin,admin,system:masters\n")
    public, key = folder / "certificate.pem", folder / "key.pem"
    for path, text in zip((public, key), certificate(), strict=True):
        path.write_text(text)
    stored = f"http://127.0.0.1:{etcd}"
    commands = [
        [
            HERE / "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={stored}",
            f"--advertise-client-urls={stored}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
        ],
        [
            HERE / "kube-apiserver",
            f"--etcd-servers={stored}",
            "--bind-address=127.0.0.1",
            f"--secure-port={api}",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens'}",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
        ],
    ]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(folder / "log", "w", encoding="utf-8"))
        for command in commands:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        cluster = Cluster(f"https://127.0.0.1:{api}", folder)
        try:
            cluster.wait("get", "--raw=/readyz")
        except RefusedError as error:
            raise RuntimeError((folder / "log").read_text()[-5000:]) from error
        cluster.ask("apply", "--server-side", *(f"--filename={x}" for x in HERE.glob("*.yaml")))
        cluster.wait("get", "prometheusrules,servicemonitors,inferenceservices")
        cluster.ask("create", "namespace", NAMESPACE)
        levels = [f"pod-security.kubernetes.io/{x}=restricted" for x in ("enforce", "warn")]
        cluster.ask("label", "namespace", NAMESPACE, *levels)
        cluster.ask("create", "serviceaccount", "default")  # a controller's work otherwise
        yield cluster
