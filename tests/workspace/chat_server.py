"""A local HTTP server that speaks the chat completions API, well or badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = "application/json"


def completion(text: str, finish_reason: str = "stop", *, usage: bool = True) -> Answer:
    body: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text},
            }
        ],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return Answer(200, json.dumps(body).encode())


class ChatServer:
    """`answer` gets the request's body and its number from 0; what it raises cuts the line."""

    def __init__(self, answer: Callable[[dict[str, Any], int], Answer]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.url = ""
        self._lock = threading.Lock()

    def take(self, handler: BaseHTTPRequestHandler) -> Answer:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.keys.append(handler.headers["Authorization"] or "")
        return self.answer(body, number)


@contextmanager
def serve(answer: Callable[[dict[str, Any], int], Answer]) -> Iterator[ChatServer]:
    chat = ChatServer(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                status, body, content_type = chat.take(self)
            except ConnectionAbortedError:
                self.connection.close()
                return
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except BrokenPipeError:  # the client has stopped waiting
                return

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    chat.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
