"""Forms of the pages: their size, their token and their fields."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.requests import Request

from multicentre.errors import ConfigurationError, RefusedByPolicy

# A study's file has kilobytes; the same limit as for the files of multicentre site approve.
LARGEST = 4 * 2**20
# Fields of the largest form, and more than any page has.
_MAX_FIELDS = 200
TOKEN = "form_token"
_NAME = re.compile(rb'name="([^"\r\n]*)"')
_BOUNDARY = re.compile(r"boundary=\"?([A-Za-z0-9'()+_,./:=?-]{1,70})\"?")


@dataclass(frozen=True)
class Form:
    """Fields of a form.

    Parameters
    ----------
    values : mapping of str to sequence of str
        Texts by name.
    files : mapping of str to bytes
        Contents of files by name; their names are not read.
    """

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return the only value of a field.

        Raises
        ------
        ConfigurationError
            The field is missing or has several values.
        """
        values = self.values.get(name, ())
        if len(values) != 1:
            raise ConfigurationError(
                f"the form must have one value of {name}; got {len(values)}", hint="Load the page again."
            )
        return values[0]


async def read_form(request: Request) -> Form:
    """Read a form and check its token.

    Raises
    ------
    RefusedByPolicy
        The token is not that of the session.
    ConfigurationError
        The form is too large or cannot be read.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST:
            raise ConfigurationError(f"a form must have at most {LARGEST // 2**20} MiB", hint="Choose another file.")
    form = parse_form(request.headers.get("content-type", ""), bytes(body))
    tokens = form.values.get(TOKEN, ())
    if len(tokens) != 1 or not hmac.compare_digest(tokens[0].encode(), request.state.session.form_token.encode()):
        raise RefusedByPolicy("a form must contain the token of its session", hint="Load the page again.")
    return form


def parse_form(content_type: str, body: bytes) -> Form:
    """Return the fields of a form.

    Raises
    ------
    ConfigurationError
        The content has another type or is damaged.

    Examples
    --------
    >>> parse_form("application/x-www-form-urlencoded", b"a=1&a=2&b=%C3%A9").values
    {'a': ['1', '2'], 'b': ['é']}
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/x-www-form-urlencoded":
            return Form(
                parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
            )
        if kind == "multipart/form-data":
            return _parse_parts(content_type, body)
    except ValueError:
        pass
    raise ConfigurationError("the form must be one of these pages; it cannot be read", hint="Load the page again.")


def _parse_parts(content_type: str, body: bytes) -> Form:
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise ValueError("no boundary")
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + match[1].encode())
    if first or not parts or not parts.pop().startswith(b"--") or len(parts) > _MAX_FIELDS:
        raise ValueError("damaged")
    values: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    for part in parts:
        head, separator, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        disposition = next(
            (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-disposition:")), b""
        )
        name = _NAME.search(disposition)
        if not separator or name is None:
            raise ValueError("damaged")
        if b"filename=" in disposition:
            files[name[1].decode()] = content
        else:
            values.setdefault(name[1].decode(), []).append(content.decode())
    return Form(values, files)
