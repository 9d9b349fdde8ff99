"""Beam's pool of Python workers on the loopback address alone: `python pool.py PORT`."""

import sys
from concurrent import futures

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer


def main(port: str) -> None:
    """Serves until the process is ended."""
    server = grpc.server(futures.ThreadPoolExecutor())
    pool = BeamFnExternalWorkerPoolServicer(use_process=True)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])
