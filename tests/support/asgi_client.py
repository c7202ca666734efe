"""A browser in miniature for an ASGI application: it stores cookies by path and follows redirects after forms."""

import asyncio
import html
import re
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


@dataclass
class Answer:
    status: int
    headers: list
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    @property
    def words(self):
        """Visible text of the page, on one line."""
        return html.unescape(re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", self.text)))

    def header(self, name):
        values = [value.decode() for key, value in self.headers if key.decode().lower() == name.lower()]
        return values[0] if values else ""


@dataclass
class Client:
    """A client of one application; `host` and `origin` are what a browser would send."""

    application: object
    access: object
    cookies: dict = field(default_factory=dict)
    pages: list = field(default_factory=list)

    def request(self, method, path, *, body=b"", headers=(), host=None):
        """Send one request to an absolute path, exactly as it is written."""
        split = urlsplit(path)
        sent = {"host": self.access.host if host is None else host}
        if kept := {name: value for name, (value, place) in self.cookies.items() if split.path.startswith(place)}:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in kept.items())
        sent |= {name.lower(): value for name, value in dict(headers).items()}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": split.path,
            "raw_path": split.path.encode(),
            "root_path": "",
            "query_string": split.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value is not None],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", self.access.port),
        }
        answer = asyncio.run(_call(self.application, scope, body))
        for key, value in answer.headers:
            if key.decode().lower() == "set-cookie":
                self._store(value.decode())
        return answer

    def get(self, page="", **options):
        """Load a page of the area."""
        return self.request("GET", f"/{self.access.area}/{page}", **options)

    def enter(self):
        """Open the printed address."""
        split = urlsplit(self.access.address)
        return self.request("GET", f"{split.path}?{split.query}")

    def token(self):
        """Return the token of the session's forms."""
        return TOKEN.search(self.get("approvals").text)[1]

    def post(self, page, fields, *, token=None, follow=True, headers=None, raw=None, kind=None):
        """Send a form as a page of the application would."""
        pairs = [*fields, ("form_token", self.token() if token is None else token)]
        sent = {"origin": self.access.origin, "content-type": kind or "application/x-www-form-urlencoded"}
        body = urlencode(pairs).encode() if raw is None else raw
        answer = self.request("POST", f"/{self.access.area}/{page}", body=body, headers={**sent, **(headers or {})})
        return self.request("GET", answer.header("location")) if follow and answer.status == 303 else answer

    def upload(self, content, name="study.toml", **options):
        """Send a file as the form of proposals would."""
        fields = [("form_token", self.token())]
        raw = b"".join(
            f'--x1\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode() for key, value in fields
        )
        head = f'--x1\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        raw += head.encode() + b"Content-Type: application/toml\r\n\r\n" + content + b"\r\n--x1--\r\n"
        return self.post("upload", (), token="", raw=raw, kind="multipart/form-data; boundary=x1", **options)

    def _store(self, line):
        pair, *attributes = line.split(";")
        name, _, value = pair.partition("=")
        place = next((one.split("=")[1] for one in attributes if one.strip().lower().startswith("path=")), "/")
        self.cookies[name] = (value.strip('"'), place)


async def _call(application, scope, body):
    sent, asked = [], False

    async def receive():
        nonlocal asked
        if asked:
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    await application(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    pieces = [message.get("body", b"") for message in sent if message["type"] == "http.response.body"]
    return Answer(start["status"], list(start["headers"]), b"".join(pieces))


def hidden_fields(page, form):
    """Return the hidden fields of the form that leads to a page, without its token."""
    part = re.search(rf'<form method="post" action="[^"]*/{form}"[^>]*>(.*?)</form>', page, re.DOTALL)[1]
    pairs = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', part)
    return [(name, html.unescape(value)) for name, value in pairs if name != "form_token"]
