"""Options of the HTTP sink."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from barnabas.pipelines.spec.options.formats import ENCODE, format_complaints
from barnabas.pipelines.spec.options.option import REQUIRED, Kind, Option, Plugin, Value
from barnabas.security.identity.secret_references import has_reference

KEY, TOPIC = "{key}", "{topic}"
"""Places in the address for the record's key and topic, percent-encoded."""
_SECRET_WORDS = ("authorization", "cookie", "token", "secret", "password", "api-key", "apikey")
_OWN_HEADERS = frozenset(("content-length", "transfer-encoding", "host", "connection"))


def address_complaint(text: str) -> str | None:
    try:
        split = urlsplit(text)
        is_whole = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or any(each <= " " for each in text):
        return "found an address that is not http://host/path or https://host/path"
    if KEY in split.netloc or TOPIC in split.netloc:
        return f"found {KEY} or {TOPIC} in the host; expected them in the path or the query"
    return None


def is_secret_header(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


def headers_complaint(given: Mapping[str, str]) -> str | None:
    for name, text in given.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            return f"found the header {name!r}; expected a name of letters, digits and '-'"
        if name.lower() in _OWN_HEADERS:
            return f"found the header {name!r}, which each request sets itself"
        if "\n" in text or "\r" in text:
            return f"found a line break in the header {name!r}"
        if is_secret_header(name) and not has_reference(text):
            return (
                f"{name} is a secret in plain text; expected a reference: ${{env:NAME}} or ${{file:path:key}}"
            )
    return None


def resolved_complaint(options: Mapping[str, Value]) -> str | None:
    """Complaint about an address that was a reference when the spec was checked."""
    url = str(options["url"])
    return address_complaint(url) or next(iter(_address_complaints(options)), None)


def _complaints(options: Mapping[str, Value]) -> list[str]:
    found = [*format_complaints(options), *_address_complaints(options)]
    if options.get("token") and options.get("user"):
        found.append("'token' and 'user' exclude each other")
    return found


def _address_complaints(options: Mapping[str, Value]) -> list[str]:
    found = []
    url, batch = str(options.get("url", "")), options.get("batch_records", 1)
    is_many = isinstance(batch, int) and batch > 1
    if is_many and options.get("format", "json") != "json":
        found.append("'batch_records' above 1 needs format json: a request holds an array, or a row a line")
    if is_many and KEY in url:
        found.append(f"'batch_records' above 1 and {KEY} in the address exclude each other")
    if options.get("tombstones") == "delete" and KEY not in url and not has_reference(url):
        found.append(f"tombstones: delete needs {KEY} in the address, because a tombstone has only its key")
    return found


HTTP = Plugin(
    "sink", "http", "Requests to a web service. At least once, with an idempotency key.", (
        Option("url", Kind.TEXT, REQUIRED, "Address. `{key}` and `{topic}` stand for the record's, percent-encoded.",
               aliases=("http.api.url",), is_address=True, check=address_complaint),
        Option("method", Kind.CHOICE, "POST", "Method of the requests.", choices=("POST", "PUT", "PATCH"),
               aliases=("request.method",)),
        Option("headers", Kind.MAP, None, "Headers of each request. Secrets must be references.", check=headers_complaint),
        Option("token", Kind.TEXT, None, "Bearer token, as a reference such as ${env:TOKEN}.", secret=True),
        Option("user", Kind.TEXT, None, "User of basic authentication.", aliases=("connection.user",)),
        Option("password", Kind.TEXT, None, "A reference such as ${env:PASSWORD}.", secret=True,
               aliases=("connection.password",)),
        Option("ca_file", Kind.TEXT, None, "File with the certificate authorities to trust, instead of the system's."),
        Option("batch_records", Kind.INTEGER, 1, "Maximum number of rows per request.", at_least=1, at_most=10_000,
               aliases=("batch.max.size",)),
        Option("body", Kind.CHOICE, "array", "Form of several rows in a request: a JSON array, or a line for each.",
               choices=("array", "lines")),
        Option("max_body_bytes", Kind.INTEGER, 1_048_576, "Larger requests are split. A larger row is refused.", at_least=1, at_most=1 << 30),
        Option("tombstones", Kind.CHOICE, "ignore", "Meaning of a record without a value: nothing, a DELETE, or a refusal.",
               choices=("ignore", "delete", "fail"), aliases=("behavior.on.null.values",)),
        Option("idempotency_header", Kind.TEXT, "Idempotency-Key", "Header with the key of a request, the same whenever it is repeated."),
        Option("timeout", Kind.DURATION, "30 seconds", "Longest wait for a connection and for an answer."),
        Option("retries", Kind.INTEGER, 5, "Repetitions of a request without an answer, or answered 408, 425, 429 or 5xx.", at_least=0, at_most=20,
               aliases=("max.retries",)),
        Option("backoff", Kind.DURATION, "1 second", "Pause before the first repetition. It doubles, with jitter."),
        Option("backoff_max", Kind.DURATION, "30 seconds", "Longest pause, also after Retry-After."),
        Option("redirect_hosts", Kind.LIST, None, "Other hosts to which 307 and 308 may lead. Credentials stay with the first."),
        *ENCODE,
    ),
    primary="url", connect_class="HttpSink", check=_complaints,
)  # fmt: skip
