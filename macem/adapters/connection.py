"""One address of a service, asked with JSON: within its time, again while it is busy, and told without its secrets."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from macem.errors import AdapterError, MacemError, OptionError, OracleError

if TYPE_CHECKING:
    import httpx

__all__ = ["Connection", "address_parts", "shown_address"]

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds before a request is repeated; doubled each time
BUSY = {429, 503}


@dataclass(eq=False, repr=False)  # which would show the headers
class Connection:
    """Sends requests to one address; it pickles, and leaves what is open behind."""

    url: str
    headers: dict[str, str]  # sent with every request
    timeout: float  # seconds for one request and the whole of its answer
    retries: int  # how often a request is repeated while the service is busy
    sleep: Callable[[float], None]
    transport: httpx.BaseTransport | None
    n_requests: int = 0
    _client: httpx.Client | None = None

    def __post_init__(self) -> None:
        _check_headers(self.headers)

    def close(self) -> None:
        """Close what is open; it opens again with the next request."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def post(self, request: dict[str, Any]) -> Any:
        """Send a request, and return what its answer says; OracleError where that is not an answer to it."""
        try:
            content = json.dumps(request, allow_nan=False)
        except ValueError:
            self.fail("cannot be asked with an infinite number", "Leave such rows out.")
        except TypeError as error:
            self.fail(f"cannot be asked with this table ({error})", "Make its columns text or numbers.")
        return self._json(self.request("POST", self.url, content))

    def request(self, method: str, url: str, content: str | None = None) -> httpx.Response:
        """Send a request, and again while the service is busy."""
        answer = self._send(method, url, content)
        for attempt in range(self.retries):
            if answer.status_code not in BUSY:
                break
            self.sleep(_wait(answer.headers.get("Retry-After"), attempt))
            answer = self._send(method, url, content)
        return answer

    def _send(self, method: str, url: str, content: str | None) -> httpx.Response:
        """Send one request and read its answer before the time is up; httpx itself gives that time to every read.

        It is looked at when the head is there and after every read of the body, so what is late ends at the read after.
        """
        deadline = time.monotonic() + self.timeout

        def keep_time() -> None:
            if time.monotonic() > deadline:
                self.fail(
                    f"did not answer wholly within {self.timeout} s",
                    "Give it more time (timeout=), or ask for less at a time (batch_size=).",
                )

        self.n_requests += 1
        headers = {"Content-Type": "application/json"}
        try:
            with self._connect().stream(method, url, content=content, headers=headers) as answer:
                keep_time()
                answer.stream = _timed(answer.stream, keep_time)
                answer.read()
        except Exception as error:
            if not type(error).__module__.startswith("httpx"):
                raise
            self.fail(
                f"cannot be reached: {type(error).__name__}: {self.quote(error)}",
                f"Check the address and that the service runs, or give it more time (timeout={self.timeout}).",
                cause=error,
            )
        return answer

    def _connect(self) -> httpx.Client:
        if self._client is None:
            try:
                import httpx
            except ImportError as error:
                raise AdapterError("A remote model needs httpx. Run: pip install 'macem[service]'") from error
            self._client = httpx.Client(timeout=self.timeout, headers=self.headers, transport=self.transport)
        return self._client

    def _json(self, answer: httpx.Response) -> Any:
        if answer.status_code in BUSY:
            self.fail(
                f"stayed busy: {answer.status_code} after {self.retries + 1} requests",
                "Ask for less at a time (batch_size=), or wait longer (retries=).",
            )
        if answer.next_request is not None:
            where = self.quote(shown_address(str(answer.next_request.url)))
            self.fail(
                f"answered {answer.status_code} {answer.reason_phrase}, a redirect to {where}",
                "It is not followed, since rows and headers would go along; if you trust that address, give it.",
            )
        if answer.status_code != 200:
            self.fail(
                f"answered {answer.status_code} {answer.reason_phrase}: {self.quote(answer.text)}",
                "Check the address, its headers (a token, say), the name of the model and the columns that it takes.",
            )
        try:
            return answer.json()
        except ValueError:
            self.fail(f"answered with something that is not JSON: {self.quote(answer.text)}", "Check the address.")

    def fail(
        self, what: str, remedy: str, *, kind: type[MacemError] = OracleError, cause: Exception | None = None
    ) -> NoReturn:
        """Raise an error that names the service."""
        raise kind(f"The service {shown_address(self.url)} {what}. {remedy}") from cause

    def quote(self, text: object) -> str:
        """The beginning of what the service or httpx said; where that repeats the address, without its secrets."""
        quoted = str(text)
        for secret in _secrets(self.url):
            quoted = quoted.replace(secret, "…")
        return quoted[:300].strip()


# Headers, time, addresses ------------------------------------------------------------------------------------------


def _check_headers(headers: dict[str, str]) -> None:
    """Refuse what cannot be sent; what a header holds is not told, and httpx would tell it."""
    for name, value in headers.items():
        if not isinstance(name, str) or not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII):
            raise OptionError(
                f"The header {name!r} has a name that cannot be sent. Write it with letters, digits and hyphens of "
                "ASCII, without blanks."
            )
        if not isinstance(value, str) or not re.fullmatch(r"([!-~]([\t -~]*[!-~])?)?", value):
            raise OptionError(
                f"The header {name!r} holds a value that cannot be sent. Make it text of ASCII in one line, without "
                "blanks around it."
            )


def _timed(stream: Any, keep_time: Callable[[], None]) -> httpx.SyncByteStream:
    """The bytes of a stream, as long as there is time; every read asks, whether or not it ends in text."""
    import httpx

    class Timed(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for part in stream:
                keep_time()
                yield part

        def close(self) -> None:
            stream.close()

    return Timed()


def _wait(retry_after: str | None, attempt: int) -> float:
    """Seconds before the next attempt: as the service asks, in seconds or as a date, else twice as long each time."""
    wait = FIRST_WAIT * 2.0**attempt
    if retry_after is not None:
        try:
            wait = float(retry_after)
        except ValueError:
            with suppress(TypeError, ValueError):
                wait = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
    return max(0.0, min(LONGEST_WAIT, wait))  # in this order: of what is no number the longest


def address_parts(url: str) -> SplitResult:
    """Split an address; OptionError where it is none."""
    if isinstance(url, str):
        with suppress(ValueError):
            parts = urlsplit(url)
            _ = parts.port  # judged here only, and wrong where a password holds a slash
            return parts
        url = shown_address(re.sub("//.*@", "//", url))
    raise OptionError(
        f"url={url!r} is no address. Give one, such as http://HOST/v2/models/NAME, with a port that is a number "
        "and special characters %-encoded."
    )


def shown_address(url: str) -> str:
    """An address as people may see it: without user info, and with the values of its query hidden."""
    place, mark, query = url.partition("#")[0].partition("?")
    return re.sub("//[^/]*@", "//", place) + mark + "&".join(map(_hidden, query.split("&")))


def _hidden(pair: str) -> str:
    """A pair of a query without its value; a version, which tells models apart, stays."""
    name, is_pair, _ = pair.partition("=")
    if not is_pair:
        return "…" if pair else ""
    return pair if name.lower().endswith("version") else f"{name}=…"


def _secrets(url: str) -> list[str]:
    """What of an address is not to be seen, as it is written and as it is meant; what contains another comes first."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    values = [pair.partition("=")[2] or pair for pair in parts.query.split("&") if _hidden(pair) != pair]
    written = [user, *user.split(":"), *values]
    texts = {text for secret in written for text in (secret, unquote(secret), unquote_plus(secret))}
    return sorted((text for text in texts if len(text) > 3), key=len, reverse=True)  # a shorter one is in many a word
