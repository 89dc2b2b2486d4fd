"""Client errors for failures of the coordination store.

The errors differ in what may have happened. After a lost connection the change may have been made; after a
lost session it was not. A malformed node gives no answer. Data that is too large for a node was never sent,
and a retry would fail again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.cluster.coordination.contract import (
    DATA_BYTES_MAX,
    ConnectionLoss,
    DataTooLarge,
    SessionClosed,
    SessionExpired,
    StoreFailed,
)
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.core.errors import (
    InvalidRequest,
    KafkaStorageError,
    NotController,
    RequestTimedOut,
    UnknownServerError,
)


@contextmanager
def as_client_errors() -> Iterator[None]:
    """Turn the store's failures, but not its refusals, into errors for clients."""
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
            f"the data exceeds what the coordination store keeps in one node, {DATA_BYTES_MAX} bytes"
        ) from error
    except MalformedZnode as error:
        raise UnknownServerError(str(error)) from error
