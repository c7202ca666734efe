"""Flower's own minimal loop: bytes go to every site and come back; public interface alone, nothing of multicentre.

It takes its orders from a socket, so that a benchmark can time its rounds in turn with others: one order a line, the
size in bytes; it answers each with the seconds that the round took.
"""

import os
import socket
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    named = str(context.run_config["sites"]).split(",")
    nodes = [node.node_id for node in grid.get_nodes() if node.name in named]
    if len(nodes) != len(named):
        raise RuntimeError("not every site is connected")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.run_config["orders"]))
        with connection.makefile("rw") as orders:
            for order in orders:
                orders.write(f"{time_round(grid, nodes, os.urandom(int(order)))}\n")
                orders.flush()


def time_round(grid: Grid, nodes: list[int], payload: bytes) -> float:
    began = time.perf_counter()
    content = RecordDict({"payload": ConfigRecord({"bytes": payload})})
    replies = list(grid.send_and_receive([Message(content, node, "query") for node in nodes]))
    seconds = time.perf_counter() - began
    if len(replies) != len(nodes) or any(reply.content["payload"]["bytes"] != payload for reply in replies):
        raise RuntimeError("a site did not send back what it was sent")
    return seconds


@client_app.query()
def echo(message: Message, context: Context) -> Message:
    return Message(message.content, reply_to=message)
