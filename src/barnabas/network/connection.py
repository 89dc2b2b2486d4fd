"""Connection of one client: frames in, exchanges out, responses back in the order of their requests.

Everything happens in turns of the event loop. A turn of reading is one `recv`, then at most
REQUESTS_PER_TURN_MAX dispatches (fewer when TURN_MS_MAX is over), then one send of all responses. Responses
made during a turn are *corked* and leave together. That holds for other connections too: a follower's fetch
may complete the requests of many producers. The responses of each leave in one send when the turn is over.
Responses made outside a turn leave at once.

Reading is *paused* (Kafka says muted) while too many requests await responses or an exchange holds the
connection. It is also paused while the client does not read its responses, or is throttled. The pause is
lazy: the socket leaves the poll only when bytes arrive for a paused connection. So a request that is answered
before the next one arrives costs no system call.

A turn starts from the loop and never from inside another turn: the dispatched frame lies in a chunk that all
connections share. So the end of a pause schedules the next turn, and does not run it.

No fault of a client leaves this file as an exception, and neither does a fault of `dispatch`: it closes this
one connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.limits import (
    OUTPUT_CONGESTED_BYTES,
    REQUESTS_PER_TURN_MAX,
    TURN_MS_MAX,
)
from barnabas.core.regions import FileRegion
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Background, Scheduler
from barnabas.network.busy_poll import BusyPoll
from barnabas.network.connection_limits import NEVER, ConnectionDeadlines, ConnectionLimits
from barnabas.network.counters import Closed, NetworkCounters
from barnabas.network.request_memory import RequestMemory
from barnabas.network.transport.arrivals import UNKNOWN_MS, StampedReceive
from barnabas.network.transport.exchange import UNKNOWN_SOFTWARE, Dispatch, Exchange, Gate
from barnabas.network.transport.output import JOINED_BYTES_MAX, RegionCutShort, RegionUnreadable
from barnabas.network.transport.receive_buffer import (
    LARGE_BYTES,
    SIZE,
    SIZE_BYTES,
    Loan,
    LoopBuffers,
    ReceiveBuffer,
)
from barnabas.network.transport.transport import Transport
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal

KEY: Final = Struct(">h")
KEY_BYTES: Final = 2
"""A request begins with its API key."""
DISCARDED_READS_MAX: Final = 16
TLS_GREETING: Final = 0x1603
"""First bytes of a TLS client, read as the size of a frame."""
SMALL_REQUEST_BYTES: Final = 1024
"""Up to this size only every fourth request of a turn reads the clock."""
OWN_TURNS_MS: Final = 1.0
"""A connection that was read this short a time ago, and no other since, has not waited for the loop."""
FIRST_WAIT_MS_MAX: Final = 30_000.0
"""Longest wait that the first bytes of a connection may claim: they may have come before it was accepted."""


class ConnectionOwner(Protocol):
    """State that connections share; the server is one."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    scheduler: Scheduler
    config: BrokerConfig
    limits: ConnectionLimits
    request_memory: RequestMemory
    frame_bytes_max_of: Callable[[int], int]
    """Largest request of an API, by its key."""
    counters: NetworkCounters
    limited_log: RateLimitedLogger
    busy_poll: BusyPoll
    buffers: LoopBuffers
    stamped: StampedReceive | None
    """Receives with the time of arrival, where the system has it."""
    disk_readers: Background
    """Read regions that responses need and the page cache lacks."""
    dispatch: Dispatch
    report_unreadable: Callable[[FileRegion, OSError], None]
    """Called when the disk fails to read a region of a response."""
    is_in_turn: bool
    answered_in_turn: dict[Connection, None]
    """Connections that got responses during a turn of another."""
    served: Connection | None
    """Connection whose turn it is, or was last."""
    switches: int
    """Number of times that another connection was served than before."""

    def authenticated(self, connection: Connection) -> None: ...
    def forget(self, connection: Connection) -> None: ...
    def bound_unread(self) -> None:
        """Close slow readers if unread responses take too much memory."""
        ...


class Connection:
    __slots__ = (
        "_arrived_ms", "_awaited_bytes", "_blocked", "_closing", "_corked", "_deadlines", "_descriptor",
        "_dispatch", "_frame_bytes_max", "_has_spoken", "_memory_bytes", "_monotonic_ms",
        "_on_end", "_output", "_owner", "_paused", "_polled", "_read_ms", "_received", "_received_total",
        "_resuming", "_stops", "_switches", "_transport", "_unanswered", "_unsent", "closed", "connection_id",
        "listener_name", "local_host", "local_port", "peer_host", "principal", "security_protocol", "session",
        "software",
    )  # fmt: skip

    def __init__(
        self,
        owner: ConnectionOwner,
        transport: Transport,
        *,
        connection_id: str,
        listener_name: str,
        security_protocol: str,
        peer_host: str,
        local_host: str,
        local_port: int,
        principal: KafkaPrincipal = ANONYMOUS,
        gate: Gate | None = None,
    ) -> None:
        self.connection_id = connection_id
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.peer_host = peer_host
        self.local_host = local_host
        self.local_port = local_port
        self.principal = principal
        self.session: object = None
        self.software = UNKNOWN_SOFTWARE
        self.closed = False
        self._owner = owner
        self._transport = transport
        self._descriptor = transport.descriptor
        self._monotonic_ms = owner.clock.monotonic_ms
        self._received = ReceiveBuffer(owner.buffers)
        self._received_total = owner.counters.received
        self._output = transport.make_output(owner.counters.sent)
        self._unanswered: deque[Exchange] = deque()
        self._unsent: list[Exchange] = []
        """Answered requests whose total time ends when the output is empty."""
        self._stops = 0
        self._switches = 0
        self._corked = False
        self._blocked = False
        self._paused = False
        self._polled = False
        self._resuming = False
        self._has_spoken = False
        self._memory_bytes = 0
        """Bytes of the pool of request memory that the arriving large request holds."""
        self._awaited_bytes = 0
        """Bytes that the request waits for; nothing is read meanwhile."""
        self._closing: Closed | None = None
        self._on_end: list[Callable[[], None]] = []
        self._arrived_ms = self._read_ms = self._monotonic_ms()
        """Arrival of the bytes that were read last, and when they were read or could have been."""
        self._deadlines = ConnectionDeadlines(owner.limits, self._read_ms, authenticates=gate is not None)
        if gate is None:
            self._frame_bytes_max = owner.config.socket_request_max_bytes
            self._dispatch = owner.dispatch
        else:
            self._frame_bytes_max = gate.frame_bytes_max
            self._dispatch = gate.admit(self)

    def start(self) -> None:
        self._polled = True
        self._transport.start_reading(self._on_readable)

    # --- reading ---

    def _on_readable(self) -> None:
        if self._resuming:
            return
        if self._paused:
            self._stop_polling()
            return
        owner = self._owner
        now_ms = self._monotonic_ms()
        stamped: StampedReceive | None = None
        waits = owner.served is not self or now_ms - self._read_ms > OWN_TURNS_MS
        try:
            if waits and (stamped := owner.stamped) is not None:
                stamped.transport = self._transport
                count = self._received.receive(stamped)
            else:
                count = self._received.receive(self._transport)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._note_silence()
            self._end(Closed.BY_PEER)
            return
        if count == 0:
            self._note_silence()
            self.drain(Closed.BY_PEER)
            return
        self._received_total.value += count
        self._deadlines.active_ms = now_ms
        self._arrived_ms = (
            now_ms - self._waited_ms(now_ms, UNKNOWN_MS if stamped is None else stamped.waited_ms)
            if waits
            else now_ms
        )
        self._has_spoken = True
        self._read_ms = now_ms
        self._serve(now_ms)

    def _waited_ms(self, now_ms: float, stamped_ms: float) -> float:
        """Time that the bytes just read have waited for the loop: as stamped, or the middle of the possible
        times."""
        possible_ms = now_ms - self._read_ms if self._has_spoken else FIRST_WAIT_MS_MAX
        if stamped_ms == UNKNOWN_MS:
            return min(possible_ms, self._owner.busy_poll.busy_ms(now_ms)) / 2
        return min(max(stamped_ms, 0.0), possible_ms)

    def _serve(self, now_ms: float) -> None:
        owner = self._owner
        owner.is_in_turn = True
        if owner.served is not self:
            owner.served = self
            owner.switches += 1
        try:
            self._serve_window(now_ms)
        finally:
            owner.is_in_turn = False
            if owner.answered_in_turn:
                others, owner.answered_in_turn = owner.answered_in_turn, {}
                for connection in others:
                    connection._send_answers()

    def _serve_window(self, now_ms: float) -> None:  # noqa: C901, PLR0912, PLR0915 - one loop over frames, where each call would cost all of them
        """Dispatch the complete frames of the window, send the responses, keep the rest for later."""
        received = self._received
        view, position, end = received.view, received.start, received.end
        unanswered, output = self._unanswered, self._output
        dispatch, size_max = self._dispatch, self._frame_bytes_max
        clock, requests_left = self._monotonic_ms, REQUESTS_PER_TURN_MAX
        arrived_ms = self._arrived_ms
        frame_bytes = 0
        large_bytes = 0
        frame_waits = False
        self._corked = True
        while end - position >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(view, position)
            if (
                not 0 <= size <= size_max and not 0 <= size <= self._frame_bytes_max
            ):  # it may have grown meanwhile
                self._reject_size(size)
                return
            frame_end = position + SIZE_BYTES + size
            if frame_end > end:
                if size >= LARGE_BYTES and end - position >= SIZE_BYTES + KEY_BYTES:
                    large_bytes = size
                break
            suspect = unanswered or self._stops or output.memory_bytes > JOINED_BYTES_MAX
            if requests_left == 0 or (suspect and self._must_pause()):
                frame_waits = True
                break
            requests_left -= 1
            exchange = Exchange(self, arrived_ms)
            unanswered.append(exchange)
            try:
                dispatch(exchange, view[position + SIZE_BYTES : frame_end])
            except Exception as error:  # noqa: BLE001 - a bug in a handler costs one connection, not the broker
                self._blame_dispatch(error)
            if self.closed:
                return
            frame_bytes = frame_end - position
            position = frame_end
            if (size > SMALL_REQUEST_BYTES or not requests_left & 3) and clock() - now_ms > TURN_MS_MAX:
                requests_left = 0
        self._corked = False
        if frame_bytes and self._memory_bytes:
            self._give_memory_back()
        if large_bytes and not self._expect_large(large_bytes, view, position + SIZE_BYTES):
            return
        received.settle(position, frame_bytes)
        deadlines = self._deadlines
        if position == end:
            deadlines.frame_since_ms = NEVER
        elif frame_bytes or deadlines.frame_since_ms == NEVER:
            deadlines.frame_since_ms = now_ms
        self._flush()
        if frame_bytes:
            self._owner.busy_poll.served(now_ms)
        if (frame_waits or unanswered or self._stops or not output.empty) and not self.closed:
            self._decide_next_turn(frame_waits=frame_waits)

    def _expect_large(self, size: int, view: memoryview, position: int) -> bool:
        """A large request begins: check its API's limit, and take memory for all of it. False if it is
        refused."""
        if self._memory_bytes or self._awaited_bytes or self._deadlines.awaits_authentication:
            return True  # unauthenticated clients may send little, and their connections are bounded
        (api_key,) = KEY.unpack_from(view, position)
        size_max = self._owner.frame_bytes_max_of(api_key)
        if size > size_max:
            self._reject_large(size, api_key, size_max)
            return False
        if self._owner.request_memory.take(self, size):
            self._memory_bytes = size
        else:
            self._awaited_bytes = size
            self._stops += 1
        return True

    def memory_granted(self) -> None:
        """The pool grants the memory of the large request."""
        self._memory_bytes, self._awaited_bytes = self._awaited_bytes, 0
        self._stops -= 1
        self._unpause()

    def _give_memory_back(self) -> None:
        size, self._memory_bytes = self._memory_bytes, 0
        self._owner.request_memory.give_back(size)

    def _must_pause(self) -> bool:
        return (
            len(self._unanswered) >= self._owner.limits.requests_in_flight_max
            or self._stops > 0
            or self._output.congested
        )

    def _decide_next_turn(self, *, frame_waits: bool) -> None:
        if self._must_pause():
            self._paused = True
        elif frame_waits:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._resuming:
            self._resuming = True
            self._owner.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self.closed:
            return
        if self._must_pause():
            self._paused = True
            return
        if not self._polled:
            self.start()
        now_ms = self._deadlines.active_ms = self._monotonic_ms()
        self._deadlines.frame_since_ms = NEVER
        self._serve(now_ms)

    def _paused_until_now(self) -> None:
        """A request that waits for an earlier one of its own connection does not wait for the loop."""
        self._arrived_ms = self._read_ms = self._monotonic_ms()

    def _unpause(self) -> None:
        """A possible reason for a pause has ended."""
        if self._paused and not self.closed and not self._must_pause():
            self._paused = False
            self._paused_until_now()
            self._schedule_turn()

    def _stop_polling(self) -> None:
        if self._polled:
            self._polled = False
            self._transport.stop_reading()

    # --- answering ---

    def answered(self, exchange: Exchange) -> None:
        if self.closed:
            self._unsent.append(exchange)
            self._note_sent()
            return
        if exchange.held:
            self._stops -= 1
        unanswered, output = self._unanswered, self._output
        if unanswered and unanswered[0] is exchange:
            while unanswered and (parts := unanswered[0].parts) is not None:
                done = unanswered.popleft()
                done.parts = ()  # an exchange that is kept longer does not keep its bytes
                if parts:
                    output.put(parts)
                self._unsent.append(done)
                if done.close_reason is not None:
                    self._close_after_answer(done.close_reason)
            if self._sends_after_turn():
                return
            self._flush()
        if not self._corked:
            self._deadlines.active_ms = self._monotonic_ms()
            self._unpause()

    def _sends_after_turn(self) -> bool:
        """Whether responses leave when the turn is over, as they do unless too many pile up."""
        if self._output.memory_bytes > OUTPUT_CONGESTED_BYTES:
            return False
        if not self._corked:
            owner = self._owner
            if not owner.is_in_turn:
                return False
            owner.answered_in_turn[self] = None
        return True

    def _send_answers(self) -> None:
        """The turn of another connection, in which this one got responses, is over."""
        if not self.closed:
            self._flush()
            self._deadlines.active_ms = self._monotonic_ms()
            self._unpause()

    def authenticated(self, principal: KafkaPrincipal) -> None:
        self.principal = principal
        self._deadlines.authenticated()
        self._frame_bytes_max = self._owner.config.socket_request_max_bytes
        self._owner.authenticated(self)

    def hold(self) -> None:
        """Pause until the exchange that asked for it is answered."""
        self._stops += 1

    def keep(self, frame: memoryview) -> memoryview:
        """The frame that is being dispatched, for longer than this turn."""
        return self._received.keep(frame)

    def lend(self) -> Loan | None:
        """The frame until it is given back; None if it has to be copied."""
        return self._received.lend()

    def others_served_since_last_call(self) -> bool:
        """Whether another connection was served since the last call, which this call becomes."""
        switches, self._switches = self._switches, self._owner.switches
        return switches != self._switches

    def throttle(self, delay_ms: float) -> None:
        """Take no further request for this long; responses still leave."""
        self._stops += 1
        self._owner.scheduler.after(delay_ms, self._end_throttle)

    def when_closed(self, action: Callable[[], None]) -> None:
        """Call `action` when the connection ends; at once if it has ended."""
        if self.closed:
            action()
        else:
            self._on_end.append(action)

    def _end_throttle(self) -> None:
        self._stops -= 1
        self._unpause()

    def _flush(self) -> None:
        """Send what the socket takes, and arrange for the rest.

        While blocked, the loop calls when there is room, or a thread when the next region has been read from
        the disk.
        """
        if not self._blocked and not self._try_send():
            self._blocked = True
            self._deadlines.blocked_since_ms = self._deadlines.unread_since_ms = self._monotonic_ms()
            self._wait_to_send()
        unread_bytes = self._output.memory_bytes
        if unread_bytes > self._owner.limits.output_bytes_max:
            self.reject_stalled()
        elif unread_bytes > OUTPUT_CONGESTED_BYTES:
            self._owner.bound_unread()

    def _try_send(self) -> bool:
        """True when nothing is left to send, also because the connection has ended."""
        try:
            done = self._output.flush()
        except ConnectionError:
            self._end(Closed.BY_PEER)
            return True
        except RegionUnreadable as error:
            self._owner.report_unreadable(error.region, error.error)
            self._blame_send(error)
            return True
        except (OSError, RegionCutShort) as error:
            self._blame_send(error)
            return True
        except Exception as error:  # noqa: BLE001 - such as a region whose file was closed under it
            self._owner.limited_log.error(
                "answer", "closing connection %s: a response cannot be sent", self.connection_id, cause=error
            )
            self._end(Closed.OWN_FAULT)
            return True
        if done:
            if self._unsent:
                self._note_sent()
            if self._closing is not None and not self._unanswered:
                self._end(self._closing)
        return done

    def _note_sent(self) -> None:
        """The responses are with the kernel, or dropped with the connection: their total times end."""
        now_ms = self._monotonic_ms()
        for exchange in self._unsent:
            if exchange.total_time is not None:
                exchange.total_time.observe(now_ms - exchange.received_ms)
        self._unsent.clear()

    def _wait_to_send(self) -> None:
        away = self._output.away
        if away is None:
            self._owner.loop.add_writer(self._descriptor, self._on_writable)
        else:
            self._owner.disk_readers.submit(away.bring_in, self._brought_in, self._brought_in)

    def _brought_in(self, _: object) -> None:
        """A region is in memory. If its read failed, so does sending it, which reports the error."""
        if not self.closed:
            self._send_more()
            if self._blocked:
                self._wait_to_send()

    def _on_writable(self) -> None:
        self._send_more()
        if not self._blocked:
            self._owner.loop.remove_writer(self._descriptor)
        elif self._output.away is not None:
            self._owner.loop.remove_writer(self._descriptor)
            self._wait_to_send()

    def _send_more(self) -> None:
        sent_before = self._owner.counters.sent.value
        if self._try_send():
            if not self.closed:
                self._blocked = False
                self._unpause()
        elif self._owner.counters.sent.value != sent_before:
            self._deadlines.active_ms = self._deadlines.blocked_since_ms = self._monotonic_ms()
            self._unpause()

    # --- ending ---

    def refuse(self, reason: str) -> None:
        """Close for a reason of the handler. Earlier responses are sent as far as the socket takes them."""
        if self.closed:
            return
        self._owner.limited_log.warn("refused", "closing connection %s: %s", self.connection_id, reason)
        self._try_send()
        self._end(Closed.REFUSED)

    def _close_after_answer(self, reason: str) -> None:
        self._owner.limited_log.warn(
            "refused", "closing connection %s after this response: %s", self.connection_id, reason
        )
        self._unanswered.clear()
        self._begin_closing(Closed.REFUSED)

    def drain(self, reason: Closed) -> None:
        """Read no more, and close once all pending responses have left. The owner's sweep sets the limit."""
        if self.closed:
            return
        self._stop_polling()
        self._paused = True
        self._begin_closing(reason)
        if not self._unanswered and self._output.empty and not self._corked:
            self._end(reason)

    def _begin_closing(self, reason: Closed) -> None:
        if self._closing is None:
            self._closing = reason
            self._stops += 1
            self._deadlines.draining_since_ms = self._monotonic_ms()

    def close(self, reason: Closed) -> None:
        """Close at once, with or without pending responses."""
        self._end(reason)

    def overdue(self, now_ms: float) -> Closed | None:
        """Reason to close this connection now, if a deadline has passed."""
        received = self._received
        return self._deadlines.overdue(
            now_ms,
            self._closing,
            is_blocked=self._blocked,
            is_busy=bool(self._unanswered) or self._resuming,
            is_paused=self._paused,
            arrived_bytes=received.end - received.start,
            idle_ms_max=self._owner.config.connections_max_idle_ms,
        )

    def _reject_size(self, size: int) -> None:
        if size >> 16 == TLS_GREETING:
            self._owner.limited_log.warn(
                "TLS",
                "closing connection %s: the client speaks TLS, this listener does not",
                self.connection_id,
            )
            self._end(Closed.BAD_FRAME)
            return
        self._owner.limited_log.warn(
            "frame size",
            "closing connection %s: a request of %d bytes; the limit %s is %d",
            self.connection_id,
            size,
            "(before authentication)"
            if self._deadlines.awaits_authentication
            else "(socket.request.max.bytes)",
            self._frame_bytes_max,
        )
        self._try_send()
        self._end(Closed.BAD_FRAME)

    def _reject_large(self, size: int, api_key: int, size_max: int) -> None:
        self._owner.limited_log.warn(
            "frame size",
            "closing connection %s: a request of %d bytes; the limit for API key %d is %d",
            self.connection_id,
            size,
            api_key,
            size_max,
        )
        self._try_send()
        self._end(Closed.BAD_FRAME)

    def unread_bytes(self, now_ms: float) -> int:
        """Memory of responses, if the client has had time to read them."""
        deadlines = self._deadlines
        is_late = now_ms - deadlines.unread_since_ms > self._owner.limits.unread_patience_ms
        return self._output.memory_bytes if self._blocked and is_late else 0

    @property
    def queued_bytes(self) -> int:
        """Memory of responses that the socket does not take."""
        return self._output.memory_bytes

    def reject_stalled(self) -> None:
        self._owner.limited_log.warn(
            "output", "closing connection %s: the client does not read its responses", self.connection_id
        )
        self._end(Closed.OUTPUT_FULL)

    def _blame_dispatch(self, error: Exception) -> None:
        self._owner.limited_log.error(
            "dispatch", "closing connection %s: a request failed", self.connection_id, cause=error
        )
        self._try_send()
        self._end(Closed.OWN_FAULT)

    def _blame_send(self, error: Exception) -> None:
        self._owner.limited_log.warn("send", "closing connection %s: %s", self.connection_id, error)
        self._end(Closed.SEND_FAILED)

    def _end(self, reason: Closed) -> None:
        if self.closed:
            return
        self.closed = True
        loop = self._owner.loop
        self._stop_polling()
        if self._blocked:
            loop.remove_writer(self._descriptor)
        if self._output.empty:
            self._take_unread()
        self._unanswered.clear()
        self._output.discard()
        self._note_sent()
        self._received.release()
        if self._awaited_bytes:
            self._owner.request_memory.leave(self)
        elif self._memory_bytes:
            self._give_memory_back()
        self._transport.close()
        self._owner.counters.closed[reason].value += 1
        self._owner.forget(self)
        actions, self._on_end = self._on_end, []
        for action in actions:
            action()

    def _note_silence(self) -> None:
        """A port scan or a health check."""
        if not self._has_spoken:
            self._owner.limited_log.info(
                "silent", "connection %s closed by the client before its first byte", self.connection_id
            )

    def _take_unread(self) -> None:
        """Closing a socket with unread input resets it, and a reset may overtake the last response."""
        chunk = memoryview(bytearray(4096))
        try:
            for _ in range(DISCARDED_READS_MAX):
                if not self._transport.recv_into(chunk):
                    return
        except OSError:
            return
