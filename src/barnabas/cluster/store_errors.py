"""What a client is told when the coordination store does not do what was asked.

The kinds differ in what may have happened: after a lost connection the change may have been
made, after a lost session it was not. A node that somebody spoilt is no answer at all. What is too large
for a node was never sent, and would be too large again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.cluster.coordination import (
    DATA_BYTES_MAX,
    ConnectionLoss,
    DataTooLarge,
    SessionClosed,
    SessionExpired,
    StoreFailed,
)
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.core.errors import (
    InvalidRequest,
    KafkaStorageError,
    NotController,
    RequestTimedOut,
    UnknownServerError,
)


@contextmanager
def as_client_errors() -> Iterator[None]:
    """Turn the store's failures, but not its refusals, into errors that a client understands."""
    try:
        yield
    except ConnectionLoss as error:
        raise RequestTimedOut("the coordination store did not answer in time") from error
    except (SessionExpired, SessionClosed) as error:
        raise NotController("this broker has lost its session with the coordination store") from error
    except StoreFailed as error:
        raise KafkaStorageError("the coordination store cannot write") from error
    except DataTooLarge as error:
        raise InvalidRequest(
            f"this is more than the coordination store keeps in one piece, {DATA_BYTES_MAX} bytes"
        ) from error
    except MalformedZnode as error:
        raise UnknownServerError(str(error)) from error
