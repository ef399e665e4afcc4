"""A Maven repository on loopback, of which tests say what it serves."""

import hashlib
import http.server
import io
import re
import threading
import zipfile
from base64 import b64encode
from contextlib import contextmanager

from tests.support.waiting import WAIT_S


def artifact_path(organisation, name, revision):
    """Where a repository keeps the artifact's files, without their endings."""
    return f"/{organisation.replace('.', '/')}/{name}/{revision}/{name}-{revision}"


def jar_of(name):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as jar:
        jar.writestr(zipfile.ZipInfo(f"{name}.txt"), name * 20_000)
    return content.getvalue()


class MavenRepository:
    """Serves artifacts that depend on nothing; counts what is asked for."""

    def __init__(self, artifacts):
        self.files = {}
        self.requested = []
        self.cut_off = set()
        self.serves_ranges = True
        self.credentials = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        for organisation, name, revision in artifacts:
            base = artifact_path(organisation, name, revision)
            pom = f"<project><modelVersion>4.0.0</modelVersion><groupId>{organisation}</groupId>"
            self._add(
                f"{base}.pom", f"{pom}<artifactId>{name}</artifactId><version>{revision}</version></project>".encode()
            )
            self._add(f"{base}.jar", jar_of(name))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def _add(self, path, content):
        self.files[path] = content
        self.files[f"{path}.sha1"] = hashlib.sha1(content).hexdigest().encode()

    def admits(self, authorization):
        if self.credentials is None:
            return True
        return authorization == "Basic " + b64encode(":".join(self.credentials).encode()).decode()

    def _handler(self):
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(with_body=False)

            def do_GET(self):
                repository.requested.append(self.path)
                repository.may_answer.wait(WAIT_S)
                self.answer(with_body=True)

            def answer(self, *, with_body):
                content = repository.files.get(self.path)
                if not repository.admits(self.headers.get("Authorization")):
                    self.send_error(401)
                    return
                if content is None:
                    self.send_error(404)
                    return
                size, asked = len(content), re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
                if asked and repository.serves_ranges:
                    first = int(asked[1]) if asked[1] else max(0, size - int(asked[2]))
                    last = min(size - 1, int(asked[2])) if asked[1] else size - 1
                    content = content[first : last + 1]
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if with_body:
                    self.wfile.write(content[: len(content) // 2] if self.path in repository.cut_off else content)

            def log_message(self, *_arguments):
                pass

        return Handler


@contextmanager
def maven_repository(artifacts):
    repository = MavenRepository(artifacts)
    threading.Thread(target=repository.server.serve_forever, args=(0.05,)).start()
    try:
        yield repository
    finally:
        repository.server.shutdown()
        repository.server.server_close()
