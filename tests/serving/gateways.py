"""Envoy itself, as a deployment runs it."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import shutil
import ssl
import subprocess
import time

import grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tests.ports import free_port
from tests.serving.certificates import certificate
from tests.serving.deployments import read, tool
from tfrank_sel.serving import monitoring

PREDICT = "/v1/models/ranker:predict"
SECRET = b"a secret of 32 bytes for the test"


def encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def token(audience="ranker", seconds=3600):
    claims = {"iss": "https://issuer.example", "aud": audience, "exp": time.time() + seconds}
    parts = {"alg": "HS256", "typ": "JWT"}, {**claims, "exp": int(claims["exp"])}
    signed = b".".join(encoded(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(SECRET, signed, hashlib.sha256).digest()
    return "Bearer " + (signed + b"." + encoded(signature)).decode()


class Gateway:
    """Clients of a running Envoy, which has ports for clients, metrics and administration."""

    def __init__(self, ports, authority, server):
        self.port, self.metrics_port, self.admin_port = ports
        self.server = server
        self.context = ssl.create_default_context(cadata=authority)
        credentials = grpc.ssl_channel_credentials(authority.encode())
        self.channel = grpc.secure_channel(f"localhost:{self.port}", credentials)
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.metadata = [("authorization", token())]

    def rest(self, method, path, body=None, **headers):
        headers = {"authorization": token(), **headers}
        connection = http.client.HTTPSConnection("localhost", self.port, context=self.context)
        with contextlib.closing(connection):
            connection.request(method, path, body, {key: x for key, x in headers.items() if x})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def served(self):
        """The requests that passed to the server."""
        connection = http.client.HTTPConnection(*self.server)
        connection.request("GET", monitoring.PATH)
        text = connection.getresponse().read().decode()
        return [line for line in text.splitlines() if "request_count{" in line]


@contextlib.contextmanager
def running(deployment, name, folder, grpc_port, rest_port):
    """Clients of an Envoy with a deployment's files, in front of a server that need not be up."""
    authority, key = certificate()
    keys = [{"kty": "oct", "alg": "HS256", "k": encoded(SECRET).decode()}]
    (folder / "tls.crt").write_text(authority)
    (folder / "tls.key").write_text(key)
    (folder / "jwks.json").write_text(json.dumps({"keys": keys}))
    shutil.copy(deployment / "bounds.lua", folder)
    ports = https, metrics, admin = free_port(), free_port(), free_port()
    text = (deployment / "envoy.yaml").read_text()
    for old, new in {
        "/run/secrets/": f"{folder}/",
        "/etc/envoy/": f"{folder}/",
        "port_value: 8443": f"port_value: {https}",
        "port_value: 9901": f"port_value: {admin}",
        "port_value: 9902": f"port_value: {metrics}",
        "port_value: 8500": f"port_value: {grpc_port}",
        "port_value: 8501": f"port_value: {rest_port}",
        f"address: {name},": "address: 127.0.0.1,",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "envoy.yaml").write_text(text)
    pod = read(deployment, "gateway/deployment.yaml")["spec"]["template"]["spec"]
    options = [x.replace("/etc/envoy", str(folder)) for x in pod["containers"][0]["command"][1:]]
    command = [tool("envoy"), *options, "--concurrency", "1", "--base-id", str(https)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as envoy,
    ):
        found = Gateway(ports, authority, ("127.0.0.1", rest_port))
        try:
            for _ in range(100):
                assert envoy.poll() is None, (folder / "log").read_text()
                with contextlib.suppress(OSError):
                    if found.rest("GET", "/")[0]:
                        break
                time.sleep(0.1)
            yield found
        finally:
            envoy.terminate()
