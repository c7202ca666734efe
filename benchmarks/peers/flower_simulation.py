"""Flower's side of the pairs of rounds: its own loop and FedAvg, in its simulation over ray."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers.process import serve

server_app, client_app = ServerApp(), ClientApp()
PATIENTS = 20


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Return the column means of this client about the values."""
    values = message.content["arrays"].to_numpy_ndarrays()[0]
    arrays = ArrayRecord([np.ones((PATIENTS, len(values))).mean(axis=0) - values])
    metrics = MetricRecord({"num-examples": PATIENTS})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@client_app.query()
def echo(message: Message, context: Context) -> Message:
    """Return the message."""
    return Message(message.content, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve rounds over the clients of the simulation."""
    n_sites = int(os.environ["BENCH_SITES"])
    while len(nodes := list(grid.get_node_ids())) < n_sites:
        time.sleep(0.05)

    def average(n_rounds: int, size: int) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=n_sites, min_available_nodes=n_sites)
        strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(size)]), num_rounds=n_rounds)

    def loop(n_rounds: int, size: int) -> None:
        for _ in range(n_rounds):
            content = RecordDict({"payload": ConfigRecord({"bytes": bytes(8 * size)})})
            replies = list(grid.send_and_receive([Message(content, node, "query") for node in nodes]))
            if len(replies) != n_sites:
                raise RuntimeError(f"{n_sites} replies were expected; got {len(replies)}.")

    serve({"fedavg": average, "loop": loop})


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with np.load(sys.argv[1]) as file, tempfile.TemporaryDirectory(prefix="ray") as folder:
        sites = int(file["n_sites"])
        os.environ["BENCH_SITES"] = str(sites)
        init = {"include_dashboard": False, "log_to_driver": False, "_temp_dir": folder}
        resources = {"num_cpus": 1, "num_gpus": 0.0}
        run_simulation(server_app, client_app, sites, backend_config={"init_args": init, "client_resources": resources})
