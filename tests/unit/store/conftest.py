"""A web server that answers as it is told, for the moods that no real S3 server shows on demand."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_conditional(self) -> bool:
        return "if-none-match" in self.headers


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; a status of 0 hangs up without a word."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def s3_error(cls, status: int, code: str) -> "Answer":
        return cls(status, body=f"<Error><Code>{code}</Code></Error>".encode())


@dataclass(slots=True)
class ScriptedServer:
    """Answers every request with `script`, and keeps what it was asked."""

    endpoint_url: str
    script: Callable[[Request], Answer]
    requests: list[Request] = field(default_factory=list)


@pytest.fixture(scope="module")
def running_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer("", lambda _: Answer(200))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, body)
            server.requests.append(request)
            answer = server.script(request)
            self.close_connection = answer.status == 0
            if answer.status:
                self.send_response_only(answer.status)
                length = {"Content-Length": str(len(answer.body))}
                for name, value in (length | answer.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

        do_DELETE = do_GET = do_HEAD = do_PUT = answer  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its signature
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.endpoint_url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(
            # The interval is how long `shutdown` takes.
            target=lambda: http.serve_forever(poll_interval=0.01),
            name="scripted-s3",
        )
        thread.start()
        yield server
        http.shutdown()
        thread.join()


@pytest.fixture
def server(running_server: ScriptedServer) -> ScriptedServer:
    running_server.requests.clear()
    running_server.script = lambda _: Answer(200)
    return running_server


@pytest.fixture
def answer() -> type[Answer]:
    return Answer


@pytest.fixture
def s3_error() -> Callable[[int, str], Answer]:
    return Answer.s3_error
