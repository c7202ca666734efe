"""Flower apps that a bundle names; their code comes from the package that each side has installed."""

from multicentre_sites.flower.handshake import make_client_app
from multicentre_sites.flower.server import make_server_app

server_app = make_server_app()
client_app = make_client_app()
