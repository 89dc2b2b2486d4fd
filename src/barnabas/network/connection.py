"""One client's connection: frames in, exchanges out, answers back in the order of their requests.

Everything happens in turns of the event loop. A turn of reading is one `recv`, then at most
REQUESTS_PER_TURN_MAX dispatches (fewer when TURN_MS_MAX is over), then one send of all that was
answered meanwhile: answers made during a turn are *corked* and leave together. That holds for
other connections too: a follower's fetch may complete the requests of many producers, and the
answers of each leave in one send when the turn is over. Answers made outside a turn leave at once.

Reading is *paused* (Kafka says muted) while too many requests await answers, while an
exchange holds the connection, while answers pile up that the peer does not take, and while
the peer is throttled. It is paused lazily: only when bytes arrive for a paused connection is
the socket taken out of the poll, so a request that is answered before the next one comes
costs no system call.

A turn starts from the loop and never from inside another turn: the frame that is being
dispatched lies in a chunk that all connections share. So whatever ends a pause schedules the
next turn, and does not run it.

No fault of a peer leaves this file as an exception, and neither does a fault of `dispatch`:
it costs this one connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Final, Protocol

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.limits import (
    FRAME_ARRIVAL_BYTES_PER_MS_MIN,
    OUTPUT_CONGESTED_BYTES,
    REQUESTS_PER_TURN_MAX,
    TURN_MS_MAX,
)
from barnabas.core.scheduler import Background, Scheduler
from barnabas.network.attention import Attention
from barnabas.network.connection_limits import ConnectionLimits
from barnabas.network.counters import Closed, NetworkCounters
from barnabas.network.exchange import Dispatch, Exchange, Gate
from barnabas.network.output import JOINED_BYTES_MAX, RegionCutShort
from barnabas.network.receive_buffer import SIZE, SIZE_BYTES, Loan, LoopBuffers, ReceiveBuffer
from barnabas.network.transport import Transport
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal

NEVER: Final = -1.0
DISCARDED_READS_MAX: Final = 16
TLS_GREETING: Final = 0x1603
"""How a client that speaks TLS begins, read as the size of a frame."""
SMALL_REQUEST_BYTES: Final = 1024
"""Up to here only every fourth request of a turn has the clock looked at."""


class ConnectionOwner(Protocol):
    """What connections have in common; the server is one."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    scheduler: Scheduler
    settings: BrokerConfig
    limits: ConnectionLimits
    counters: NetworkCounters
    complaints: Complaints
    attention: Attention
    buffers: LoopBuffers
    disk_readers: Background
    """Bring in what answers need and the page cache has not."""
    dispatch: Dispatch
    is_in_turn: bool
    answered_in_turn: dict[Connection, None]
    """Connections that got answers during a turn of another."""
    served: Connection | None
    """Whose turn it is, or was last."""
    switches: int
    """How often that was another than before."""

    def forget(self, connection: Connection) -> None: ...


class Connection:
    __slots__ = (
        "_active_ms", "_authenticate_by_ms", "_blocked_since_ms", "_closing", "_corked", "_descriptor",
        "_dispatch", "_draining_since_ms", "_frame_bytes_max", "_frame_since_ms", "_has_spoken",
        "_monotonic_ms", "_output", "_owner", "_paused", "_polled", "_received", "_received_total",
        "_resuming", "_stops", "_switches", "_transport", "_unanswered", "closed", "connection_id",
        "listener_name", "local_host", "local_port", "peer_host", "principal", "security_protocol", "session",
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
        self.closed = False
        self._owner = owner
        self._transport = transport
        self._descriptor = transport.descriptor
        self._monotonic_ms = owner.clock.monotonic_ms
        self._received = ReceiveBuffer(owner.buffers)
        self._received_total = owner.counters.received
        self._output = transport.make_output(owner.counters.sent)
        self._unanswered: deque[Exchange] = deque()
        self._stops = 0
        self._switches = 0
        self._corked = False
        self._paused = False
        self._polled = False
        self._resuming = False
        self._has_spoken = False
        self._closing: Closed | None = None
        self._active_ms = self._monotonic_ms()
        self._frame_since_ms = NEVER
        self._blocked_since_ms = NEVER
        self._draining_since_ms = NEVER
        if gate is None:
            self._authenticate_by_ms = inf
            self._frame_bytes_max = owner.settings.socket_request_max_bytes
            self._dispatch = owner.dispatch
        else:
            self._authenticate_by_ms = self._active_ms + owner.limits.authentication_ms_max
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
        try:
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
        self._has_spoken = True
        self._received_total.value += count
        self._active_ms = self._monotonic_ms()
        self._serve()

    def _serve(self) -> None:
        owner = self._owner
        owner.is_in_turn = True
        if owner.served is not self:
            owner.served = self
            owner.switches += 1
        try:
            self._serve_window()
        finally:
            owner.is_in_turn = False
            if owner.answered_in_turn:
                others, owner.answered_in_turn = owner.answered_in_turn, {}
                for connection in others:
                    connection._send_answers()

    def _serve_window(self) -> None:  # noqa: C901 - one loop over frames, where each call would cost all of them
        """Dispatch the whole frames of the window, send the answers, keep what is left for later."""
        received = self._received
        view, position, end = received.view, received.start, received.end
        unanswered, output, now_ms = self._unanswered, self._output, self._active_ms
        dispatch, size_max = self._dispatch, self._frame_bytes_max
        clock, requests_left = self._monotonic_ms, REQUESTS_PER_TURN_MAX
        frame_bytes = 0
        frame_waits = False
        self._corked = True
        while end - position >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(view, position)
            if not 0 <= size <= size_max and not 0 <= size <= self._frame_bytes_max:  # it may have grown
                self._reject_size(size)
                return
            frame_end = position + SIZE_BYTES + size
            if frame_end > end:
                break
            suspect = unanswered or self._stops or output.memory_bytes > JOINED_BYTES_MAX
            if requests_left == 0 or (suspect and self._must_pause()):
                frame_waits = True
                break
            requests_left -= 1
            exchange = Exchange(self, now_ms)
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
        received.settle(position, frame_bytes)
        if position == end:
            self._frame_since_ms = NEVER
        elif frame_bytes or self._frame_since_ms == NEVER:
            self._frame_since_ms = now_ms
        self._flush()
        if frame_bytes:
            self._owner.attention.served(now_ms)
        if (frame_waits or unanswered or self._stops or not output.empty) and not self.closed:
            self._decide_next_turn(frame_waits=frame_waits)

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
        self._active_ms = self._monotonic_ms()
        self._frame_since_ms = NEVER
        self._serve()

    def _unpause(self) -> None:
        """Something that may have been the reason of a pause has ended."""
        if self._paused and not self.closed and not self._must_pause():
            self._paused = False
            self._schedule_turn()

    def _stop_polling(self) -> None:
        if self._polled:
            self._polled = False
            self._transport.stop_reading()

    # --- answering ---

    def answered(self, exchange: Exchange) -> None:
        if self.closed:
            return
        if exchange.held:
            self._stops -= 1
        unanswered, output = self._unanswered, self._output
        if unanswered and unanswered[0] is exchange:
            while unanswered and (parts := unanswered[0].parts) is not None:
                done = unanswered.popleft()
                done.parts = ()  # whoever keeps the exchange does not keep its bytes
                if parts:
                    output.put(parts)
                if done.close_reason is not None:
                    self._close_after_answer(done.close_reason)
            if self._sends_after_turn():
                return
            self._flush()
        if not self._corked:
            self._active_ms = self._monotonic_ms()
            self._unpause()

    def _sends_after_turn(self) -> bool:
        """Whether answers leave when the turn is over, as they do unless too many pile up."""
        if self._output.memory_bytes > OUTPUT_CONGESTED_BYTES:
            return False
        if not self._corked:
            owner = self._owner
            if not owner.is_in_turn:
                return False
            owner.answered_in_turn[self] = None
        return True

    def _send_answers(self) -> None:
        """The turn of another connection, in which this one got answers, is over."""
        if not self.closed:
            self._flush()
            self._active_ms = self._monotonic_ms()
            self._unpause()

    def authenticated(self, principal: KafkaPrincipal) -> None:
        self.principal = principal
        self._authenticate_by_ms = inf
        self._frame_bytes_max = self._owner.settings.socket_request_max_bytes

    def hold(self) -> None:
        """Until the exchange that asked for it is answered."""
        self._stops += 1

    def keep(self, frame: memoryview) -> memoryview:
        """The frame that is being dispatched, for longer than this turn."""
        return self._received.keep(frame)

    def lend(self) -> Loan | None:
        """The same until it is given back; None if it has to be copied."""
        return self._received.lend()

    def has_company(self) -> bool:
        """Whether anybody else was served since this was asked last."""
        switches, self._switches = self._switches, self._owner.switches
        return switches != self._switches

    def throttle(self, delay_ms: float) -> None:
        """Take no further request for this long; answers still leave."""
        self._stops += 1
        self._owner.scheduler.after(delay_ms, self._end_throttle)

    def _end_throttle(self) -> None:
        self._stops -= 1
        self._unpause()

    def _flush(self) -> None:
        """Send what can be sent; arrange for the rest. While blocked, the loop calls when there is room, or a
        thread when what comes next has been read from the disk."""
        if self._blocked_since_ms == NEVER and not self._try_send():
            self._blocked_since_ms = self._monotonic_ms()
            self._wait_to_send()
        if self._output.memory_bytes > self._owner.limits.output_bytes_max:
            self._reject_stalled()

    def _try_send(self) -> bool:
        """True when nothing is left to send, also because the connection has ended."""
        try:
            done = self._output.flush()
        except ConnectionError:
            self._end(Closed.BY_PEER)
            return True
        except (OSError, RegionCutShort) as error:
            self._blame_send(error)
            return True
        except Exception as error:  # noqa: BLE001 - such as a region whose file was closed under it
            self._owner.complaints.error(
                "answer", "an answer for %s cannot be sent; closing it", self.connection_id, cause=error
            )
            self._end(Closed.OWN_FAULT)
            return True
        if done and self._closing is not None and not self._unanswered:
            self._end(self._closing)
        return done

    def _wait_to_send(self) -> None:
        away = self._output.away
        if away is None:
            self._owner.loop.add_writer(self._descriptor, self._on_writable)
        else:
            self._owner.disk_readers.submit(away.bring_in, self._brought_in, self._brought_in)

    def _brought_in(self, _: object) -> None:
        """What was on the disk is in memory. If reading it failed, so does sending it, and that is told."""
        if not self.closed:
            self._send_more()
            if self._blocked_since_ms != NEVER:
                self._wait_to_send()

    def _on_writable(self) -> None:
        self._send_more()
        if self._blocked_since_ms == NEVER:
            self._owner.loop.remove_writer(self._descriptor)
        elif self._output.away is not None:
            self._owner.loop.remove_writer(self._descriptor)
            self._wait_to_send()

    def _send_more(self) -> None:
        sent_before = self._owner.counters.sent.value
        if self._try_send():
            if not self.closed:
                self._blocked_since_ms = NEVER
                self._unpause()
        elif self._owner.counters.sent.value != sent_before:
            self._active_ms = self._blocked_since_ms = self._monotonic_ms()
            self._unpause()

    # --- ending ---

    def refuse(self, reason: str) -> None:
        """A handler gives this peer up. Answers made before go out as far as the socket takes them."""
        if self.closed:
            return
        self._owner.complaints.warn("refused", "closing %s: %s", self.connection_id, reason)
        self._try_send()
        self._end(Closed.REFUSED)

    def _close_after_answer(self, reason: str) -> None:
        self._owner.complaints.warn("refused", "closing %s after this answer: %s", self.connection_id, reason)
        self._unanswered.clear()
        self._begin_closing(Closed.REFUSED)

    def drain(self, reason: Closed) -> None:
        """Read no more; close once every answer owed has left. The owner's sweep sets the limit."""
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
            self._draining_since_ms = self._monotonic_ms()

    def close(self, reason: Closed) -> None:
        """At once, whatever is still owed."""
        self._end(reason)

    def overdue(self, now_ms: float) -> Closed | None:
        """The reason to close this connection now, if time has brought one."""
        limits = self._owner.limits
        if now_ms > self._authenticate_by_ms:
            return Closed.UNAUTHENTICATED
        if self._closing is not None and self._closing is not Closed.SHUTDOWN:
            progress_ms = max(self._draining_since_ms, self._active_ms)
            return _late(now_ms, progress_ms, limits.half_closed_ms_max, self._closing)
        if self._blocked_since_ms != NEVER:
            limit_ms = limits.output_stalled_ms_max
            return _late(now_ms, self._blocked_since_ms, limit_ms, Closed.STALLED_READER)
        if self._unanswered or self._resuming:
            return None
        # One that is throttled is not read, so that its peer has gone is not seen either: it may be idle.
        if self._frame_since_ms != NEVER and not self._paused:
            granted_ms = (self._received.end - self._received.start) / FRAME_ARRIVAL_BYTES_PER_MS_MIN
            limit_ms = limits.frame_arrival_ms_max + granted_ms
            return _late(now_ms, self._frame_since_ms, limit_ms, Closed.SLOW_REQUEST)
        return _late(now_ms, self._active_ms, self._owner.settings.connections_max_idle_ms, Closed.IDLE)

    def _reject_size(self, size: int) -> None:
        if size >> 16 == TLS_GREETING:
            self._owner.complaints.warn(
                "TLS", "closing %s: it speaks TLS, which this listener does not", self.connection_id
            )
            self._end(Closed.BAD_FRAME)
            return
        self._owner.complaints.warn(
            "frame size",
            "closing %s: a request of %d bytes; the limit %s is %d",
            self.connection_id,
            size,
            "(socket.request.max.bytes)" if self._authenticate_by_ms == inf else "(before authentication)",
            self._frame_bytes_max,
        )
        self._try_send()
        self._end(Closed.BAD_FRAME)

    def _reject_stalled(self) -> None:
        self._owner.complaints.warn("output", "closing %s: it does not read its answers", self.connection_id)
        self._end(Closed.OUTPUT_FULL)

    def _blame_dispatch(self, error: Exception) -> None:
        self._owner.complaints.error(
            "dispatch", "a request of %s could not be handled; closing it", self.connection_id, cause=error
        )
        self._try_send()
        self._end(Closed.OWN_FAULT)

    def _blame_send(self, error: Exception) -> None:
        self._owner.complaints.warn("send", "closing %s: %s", self.connection_id, error)
        self._end(Closed.SEND_FAILED)

    def _end(self, reason: Closed) -> None:
        if self.closed:
            return
        self.closed = True
        loop = self._owner.loop
        self._stop_polling()
        if self._blocked_since_ms != NEVER:
            loop.remove_writer(self._descriptor)
        if self._output.empty:
            self._take_unread()
        self._unanswered.clear()
        self._output.discard()
        self._received.release()
        self._transport.close()
        self._owner.counters.closed[reason].value += 1
        self._owner.forget(self)

    def _note_silence(self) -> None:
        """Somebody looks for open ports, or whether this one is."""
        if not self._has_spoken:
            self._owner.complaints.info("silent", "%s came and went without a word", self.connection_id)

    def _take_unread(self) -> None:
        """Closing a socket with unread input resets it, and a reset may overtake the last answer."""
        chunk = memoryview(bytearray(4096))
        try:
            for _ in range(DISCARDED_READS_MAX):
                if not self._transport.recv_into(chunk):
                    return
        except OSError:
            return


def _late(now_ms: float, since_ms: float, limit_ms: float, reason: Closed) -> Closed | None:
    return reason if now_ms - since_ms > limit_ms else None
