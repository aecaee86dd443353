"""Listen, say where, and answer until interrupted."""

from __future__ import annotations

import socket
from pathlib import Path

from corpus.browser.server import make_app
from workspace.errors import UserError

LOCAL = ("127.0.0.1", "localhost", "[::1]")


def serve(corpus: Path, cache: Path, host: str, port: int) -> None:
    """Serve the corpus. Raises `UserError` when the port is taken or the host is not ours."""
    import uvicorn

    is_local = host in ("127.0.0.1", "localhost", "::1")
    # A name that others know this machine by cannot be listed, so outside every name is answered.
    app = make_app(corpus, cache, list(LOCAL) if is_local else ["*"])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(2048)  # from here on the address that we print is answered
        except OSError as error:
            raise UserError(f"{host}:{port}: {error.strerror}; choose another --serve") from error
        shown = f"[{host}]" if ":" in host else host
        print(f"open    http://{shown}:{listener.getsockname()[1]}/", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
