"""The connection between a job's coordinator and its node agents: authenticated JSON messages.

The coordinator listens on a port of the batch node that it chooses itself; the agents get address
and key in their environment. Both sides prove that they know the key (HMAC-SHA256 of the other's
nonce), because everybody on the cluster can reach the port. Messages after that are plain: they
hold no secrets, and whoever can change a TCP stream inside the cluster can do worse.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import secrets
import socket
import threading
from multiprocessing.connection import Connection
from typing import Any

from workspace.errors import DsmError

ADDRESS_VARIABLE = "DSM_COORDINATOR"
KEY_VARIABLE = "DSM_COORDINATOR_KEY"

UNFIT = "unfit"  # what an agent says instead of "hello" when its node may not train, with `why`
HEALTH = "health"  # ... while it trains, when what its checks find has changed
LINK = "link"  # the order to exchange with another node, and the answer

Message = dict[str, Any]

_NONCE_BYTES = 32
_LONGEST = 1 << 20
_HANDSHAKE_S = 10.0


class LinkError(DsmError):
    """The other side is gone, or is not who it should be."""


class Link:
    """One connection. `peer` is the other side's address."""

    def __init__(self, connection: Connection, peer: str) -> None:
        self.connection = connection
        self.peer = peer

    def send(self, message: Message) -> None:
        """Raises `LinkError` when the other side is gone."""
        try:
            self.connection.send_bytes(json.dumps(message).encode("utf-8"))
        except (OSError, ValueError) as error:
            raise LinkError(str(error)) from error

    def receive(self, timeout_s: float = 0.0) -> Message | None:
        """The next message, None when there is none in time. Raises `LinkError`."""
        try:
            if not self.connection.poll(timeout_s):
                return None
            message = json.loads(self.connection.recv_bytes(_LONGEST))
        except (OSError, EOFError, ValueError) as error:
            raise LinkError(str(error) or "closed") from error
        if not isinstance(message, dict):
            raise LinkError("not a message")
        return message

    @property
    def own_address(self) -> str:
        """Of this side: where the other one's network reaches this machine."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as same:
            return str(same.getsockname()[0])

    def close(self) -> None:
        self.connection.close()


class Listener:
    """The coordinator's side: connections that proved themselves come out of `admitted`."""

    def __init__(self, key: str) -> None:
        self._key = key.encode("ascii")
        self._socket = socket.create_server(("", 0), backlog=1024)
        self.port = int(self._socket.getsockname()[1])
        self.admitted: queue.SimpleQueue[Link] = queue.SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, peer = self._socket.accept()
            except OSError:
                return  # closed
            # A thread each: one that says nothing holds up nobody.
            threading.Thread(target=self._admit, args=(accepted, str(peer[0])), daemon=True).start()

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        connection = _wrap(accepted)
        try:
            _challenge(connection, self._key, b"agent")
            _answer(connection, self._key, b"coordinator")
        except (OSError, EOFError, LinkError):
            connection.close()
            return
        self.admitted.put(Link(connection, peer))


def connect(host: str, port: int, key: str) -> Link:
    """The agent's side. Raises `OSError` or `LinkError`."""
    made = socket.create_connection((host, port), timeout=_HANDSHAKE_S)
    connection = _wrap(made)
    try:
        _answer(connection, key.encode("ascii"), b"agent")
        _challenge(connection, key.encode("ascii"), b"coordinator")
    except EOFError as error:
        raise LinkError("the coordinator closed the connection") from error
    return Link(connection, host)


def new_key() -> str:
    """A key for one job."""
    return secrets.token_hex(32)


def _wrap(connected: socket.socket) -> Connection:
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(connected.detach())


def _challenge(connection: Connection, key: bytes, role: bytes) -> None:
    """Have the other side prove that it knows the key."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    connection.send_bytes(nonce)
    if not connection.poll(_HANDSHAKE_S):
        raise LinkError("no answer to the challenge")
    answer = connection.recv_bytes(64)
    if not hmac.compare_digest(answer, hmac.digest(key, role + nonce, "sha256")):
        raise LinkError("the other side does not know the key")


def _answer(connection: Connection, key: bytes, role: bytes) -> None:
    if not connection.poll(_HANDSHAKE_S):
        raise LinkError("no challenge came")
    nonce = connection.recv_bytes(_NONCE_BYTES)
    connection.send_bytes(hmac.digest(key, role + nonce, "sha256"))
