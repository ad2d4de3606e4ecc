"""One spool's batches to a gateway: one stream, in order, one retry layer.

Promises: nothing leaves the spool before the store has it; a batch refused for good is handed to `Losses`, all
other failures are tried again for ever, with pauses that grow to 2 s; frames are read from the disk only when they may
go; a peer that is frozen is left within 5 s.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

from rankscope._connection import Failure, Kind, failure_of
from rankscope._grpc import grpc
from rankscope.agent.pauses import DENIED_S, Pauses
from rankscope.agent.ports import Frames, Losses, Marks, Way, Who
from rankscope.agent.talk import Answers, Talk
from rankscope.agent.window import Stand, Window
from rankscope.errors import RankscopeError, Unavailable
from rankscope.spool import Frame
from rankscope_proto.failpoints import reach
from rankscope_proto.identity import payload_digest
from rankscope_proto.names import GapCause
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed

POLL_S = 0.2
WATCHDOG_S = 4.5
"""A batch on the way this long without any answer means the stream is dead, whatever TCP says: with the keepalive
of 3 + 1.5 s a frozen peer is left within 5 s. A slow one would be left for ever, so the patience doubles each time."""
LONGEST_WATCHDOG_S = 36.0

QUIET_S = 2.0
"""Answers to batches say what is durable; without one for this long it is asked for. After the last batch at once."""
STAND_S = 1.0
HURRIED_STAND_S = 0.25
STALLED_S = 60.0

STRIKES = 3
"""Times a batch is tried, then alone, before a refusal is believed to be its own: a network without TLS that spoils
bytes makes any batch look wrong, and a gateway at its limit says "no room" of any."""

NO_STRIKES = (-1, "", 0)
"""Which batch was refused, in which words, how often."""

KEEP_S = 0.25
"""Age at which the standing is written down again."""


class Sender:
    """Sends a spool from daemon threads of its own.

    Args:
        frames: The spool, held by this process.
        who: Whose it is.
        way: How to reach a gateway.
        window: From where to go on.
        losses: Told of every batch refused for good.
        marks: Told before anything is sent.

    Attributes:
        fault: What stands in the way since the last success; None: nothing.
        refusals: Why batches were refused for good, the last ones; whoever tells of one takes it out.
    """

    def __init__(self, frames: Frames, who: Who, *, way: Way, window: Window, losses: Losses, marks: Marks) -> None:
        self._frames = frames
        self._who = who
        self._way = way
        self._window = window
        self._losses = losses
        self._marks = marks
        self._changed = threading.Condition()
        self._pauses = Pauses()
        now = time.monotonic()
        self._ahead: tuple[int, Frame] | None = None
        self._cause: Failure | None = None
        self._talk: Talk | None = None
        self._head: int | None = None
        self._refused: set[int] = set()
        self._kept: Stand | None = None
        self._asked_at, self._asked_again_at = 0.0, now
        self._answered_at = self._moved_at = now
        self._kept_at = float("-inf")
        self._patience_s = WATCHDOG_S
        self._strikes = NO_STRIKES
        self._is_ending = self._is_closed = False
        self._call: Answers | None = None
        self._conversation = 0
        self.fault: Failure | None = None
        self.refusals: deque[str] = deque(maxlen=16)
        self._thread = threading.Thread(target=self._run, name="rankscope-send", daemon=True)
        self._thread.start()

    @property
    def stand(self) -> Stand:
        """What is in the broker and in the store."""
        return Stand(self._window.accepted, self._window.durable)

    @property
    def endpoint(self) -> str:
        """The gateway in use; "" where none is."""
        talk = self._talk
        return "" if talk is None else talk.endpoint

    @property
    def moved_at(self) -> float:
        """Monotonic second of the last progress."""
        return self._moved_at

    def is_delivered(self) -> bool:
        """Whether the store has all there is now, or it was declared lost; no where the disk does not say."""
        with self._changed, contextlib.suppress(OSError):
            return self._is_through()
        return False

    def backlog_bytes(self) -> int:
        """Bytes of segments that hold something not durable; 0 where the disk does not say."""
        with self._changed, contextlib.suppress(OSError):
            return self._frames.backlog_bytes
        return 0

    def wake(self) -> None:
        """Look for new frames now."""
        with self._changed:
            self._changed.notify_all()

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop sending; what is not durable stays in the spool."""
        with self._changed:
            self._is_closed = True
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()
        self._thread.join(timeout_s)
        with self._changed, contextlib.suppress(OSError):
            self._keep_standing(now=True)

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            try:
                goes_on = self._wait_for_work()
                if goes_on:
                    self._attempt()
            except (RankscopeError, OSError) as error:  # a setting, a certificate, a disk: not the gateway's fault
                self._fail(Failure(Unavailable(str(error)), DENIED_S, Kind.OURS))

    def _attempt(self) -> None:
        try:
            self._converse()
            self._pause(None)  # the gateway ended the stream: it restarts, or the stream was idle
        except grpc.RpcError as error:
            self._take_failure(self._cause or failure_of(error, self.endpoint))

    def _wait_for_work(self) -> bool:
        """Wait until there is something to send or to ask, and the pause is over; False once closed."""
        with self._changed:
            while not self._is_closed:
                self._keep_standing()
                pause = self._pauses.left_s()
                if pause <= 0 and (self._window.is_waiting or self._next_frame() is not None):
                    return True
                self._changed.wait(max(pause, POLL_S))
        return False

    def _converse(self) -> None:
        """One stream: until it fails, is cancelled, or this is closed."""
        self._cause = self._head = self._talk = None
        self._talk = talk = Talk(self._way.connect(), self._who, key=self._key())
        self._asked_at = time.monotonic()
        stand = talk.stand()
        with self._changed:
            self._window.begin(stand)
            self._answered_at = time.monotonic()
            self._conversation += 1
            self._call = call = talk.stream(self._requests(self._conversation, talk))
        try:
            for ack in call:
                self._take_ack(ack)
        finally:
            call.cancel()
            with self._changed:
                self._call = None
                self._conversation += 1
                self._head = self._window.first_unanswered
                self._window.interrupt()
                self._changed.notify_all()

    def _key(self) -> str | None:
        keys = self._way.keys()
        return keys[self._pauses.denials % len(keys)] if keys else None

    def _requests(self, conversation: int, talk: Talk) -> Iterator[Sealed]:
        """The batches to send; runs in gRPC's own thread, which outlives its stream by a moment."""
        try:
            while self._goes_on(conversation):
                sealed = self._next_sealed(conversation, talk)
                if sealed is not None:
                    yield sealed
                    reach("agent.after_send")
                elif not self._bides(conversation, talk):
                    return
        except (RankscopeError, OSError) as error:
            self._give_up_call(conversation, Failure(Unavailable(str(error)), DENIED_S, Kind.OURS))

    def _goes_on(self, conversation: int) -> bool:
        return conversation == self._conversation and not self._is_closed

    def _bides(self, conversation: int, talk: Talk) -> bool:
        """Nothing can go now: wait a little, or ask what is durable; whether the stream goes on."""
        with self._changed:
            if not self._goes_on(conversation) or self._has_stopped_answering():
                return False
            is_due = self._is_time_to_ask()
            if not is_due:
                self._changed.wait(POLL_S)
        return not is_due or self._ask(conversation, talk)

    def _next_sealed(self, conversation: int, talk: Talk) -> Sealed | None:
        """The next batch, where it may go now; from then on it is on the way."""
        with self._changed:
            # Asked again under the lock: the window may be another conversation's by now.
            if not self._goes_on(conversation) or self._pauses.left_s() > 0:
                return None
            frame = self._next_frame()
            if frame is None or not self._may_send(frame):
                return None
            self._marks.reserve(frame.seq)
            if self._window.first_unanswered is None:
                self._answered_at = time.monotonic()
            again = self._window.send(frame.seq, len(frame.payload)) or self._marks.is_copied()
            self._ahead = None
            self._is_ending |= frame.is_last
            return talk.sealed(frame, base=self._window.base, again=again)

    def _may_send(self, frame: Frame) -> bool:
        window = self._window
        if self._strikes[2] and window.first_unanswered is not None:
            return False  # alone
        if not window.may_send(frame.seq, len(frame.payload)):
            return False
        if any(seq not in self._refused for seq in range(window.next_seq, frame.seq - frame.skipped)):
            self._keep_standing(now=True)  # what is durable is not read again
            self._losses.account_for_holes(before=frame.seq)
        return True

    def _next_frame(self) -> Frame | None:
        seq = self._window.next_seq
        if self._ahead is None or self._ahead[0] != seq:
            frame = self._frames.next(seq)
            while frame is not None and frame.seq in self._refused:
                frame = self._frames.next(frame.seq + 1)
            self._ahead = None if frame is None else (seq, frame)
        return None if self._ahead is None else self._ahead[1]

    def _has_stopped_answering(self) -> bool:
        silent_s = time.monotonic() - self._answered_at
        if self._window.first_unanswered is None or silent_s < self._patience_s:
            return False
        self._patience_s = min(LONGEST_WATCHDOG_S, 2 * self._patience_s)
        text = f"the gateway at {self.endpoint} has not answered for {silent_s:.1f} s"
        self._give_up_call(self._conversation, Failure(Unavailable(text), None))
        return True

    def _give_up_call(self, conversation: int, cause: Failure) -> None:
        with self._changed:
            if self._goes_on(conversation) and self._call is not None:
                self._cause = cause
                self._call.cancel()

    def _is_time_to_ask(self) -> bool:
        """Whether to ask what is durable: something may be, and no answer to a batch will tell soon."""
        now = time.monotonic()
        self._keep_standing()
        is_hurried = self._window.is_paced or self._is_ending
        every_s = HURRIED_STAND_S if is_hurried else STAND_S
        if not self._window.is_waiting or self._window.first_unanswered is not None or now - self._asked_at < every_s:
            return False
        if now - max(self._moved_at, self._asked_again_at) > STALLED_S:
            self._asked_again_at = now
            self._window.ask_again()
            return False
        frame = self._next_frame()
        is_at_hole = frame is not None and frame.seq > self._window.next_seq
        return is_hurried or is_at_hole or now - self._answered_at >= QUIET_S

    def _ask(self, conversation: int, talk: Talk) -> bool:
        """Ask where this incarnation stands, in the stream's own thread; whether the stream goes on."""
        try:
            self._asked_at = time.monotonic()
            stand = talk.stand()
        except grpc.RpcError as error:
            self._give_up_call(conversation, failure_of(error, self.endpoint))
            return False
        with self._changed:
            if stand is not None and self._goes_on(conversation):
                before = self.stand
                self._window.learn(stand)
                self._note_progress(before)
        return True

    def _take_ack(self, ack: Ack) -> None:
        reach("agent.after_ack")
        with self._changed:
            if self._window.first_unanswered is None:
                return
            before = self.stand
            seq = self._window.take(ack)
            self._take_as_alive(ack)
            if seq >= self._strikes[0]:
                self._strikes = NO_STRIKES
            self._note_progress(before)
            self._keep_standing()
            self._changed.notify_all()
        if ack.outcome == Ack.OUTCOME_CONFLICT:
            self._refuse(seq, GapCause.CONFLICT, detail="another payload was accepted under this number")

    def _take_as_alive(self, ack: Ack) -> None:
        self._answered_at = time.monotonic()
        self._patience_s = WATCHDOG_S
        self._pauses.take_success(ack.retry_after_ms)
        self.fault = None

    def _note_progress(self, before: Stand) -> None:
        if self.stand != before:
            self._moved_at = time.monotonic()

    def _keep_standing(self, *, now: bool = False) -> None:
        """Write down how far this is, and free what is durable; at most every `KEEP_S`."""
        seen, at = self.stand, time.monotonic()
        if not now and (seen == self._kept or at - self._kept_at < KEEP_S):
            return
        # The end first: what is appended behind it is not through, and would be taken for stored.
        end = max(seen.durable, self._frames.end_seq) if self._window.is_settled else seen.durable
        stand = Stand(max(seen.accepted, end), end) if self._is_through() else seen
        self._kept, self._kept_at = seen, at
        with contextlib.suppress(OSError):  # a full disk: it is written down later
            self._frames.note_standing(*stand)
            reach("agent.before_free")
            self._frames.free_below(stand.durable)

    def _is_through(self) -> bool:
        return self._window.is_settled and self._next_frame() is None

    def _take_failure(self, failure: Failure) -> None:
        if self._is_closed:
            return
        with self._changed:
            head, self._head = self._head, None
            is_idle = head is None and self._is_through()
            is_out = head is not None and self._strike(head, failure)
        if head is not None and is_out:
            cause = GapCause.OVERSIZE if failure.kind is Kind.TOO_LARGE else GapCause.QUARANTINED
            self._refuse(head, cause, detail=str(failure.error))
        elif is_idle:  # the gateway ends streams on which nothing comes: there is nothing to say
            self._pause(failure)
        else:
            self._fail(failure)

    def _strike(self, seq: int, failure: Failure) -> bool:
        """Count a refusal of a batch; whether it was refused often enough, each time in the same words."""
        if failure.kind not in {Kind.REFUSED, Kind.TOO_LARGE}:
            return False
        words = str(failure.error)
        before = self._strikes if self._strikes[:2] == (seq, words) else (seq, words, 0)
        self._strikes = (seq, words, before[2] + 1)
        frame = self._frames.next(seq)
        is_whole = frame is not None and frame.seq == seq and payload_digest(frame.payload) == frame.digest
        is_spoilt_on_the_way = is_whole and "digest" in words
        return self._strikes[2] >= STRIKES and not is_spoilt_on_the_way

    def _refuse(self, seq: int, cause: GapCause, *, detail: str) -> None:
        with self._changed:
            frame = self._frames.next(seq)
            self._ahead = self._kept = None
            self._strikes = NO_STRIKES
            if frame is not None and frame.seq == seq:
                self._losses.refuse(frame, cause, detail=detail)
                self._refused.add(seq)
            self._window.pass_over(seq)
        text = f"batch {seq} of {self._who.incarnation.hex()}: {detail}"
        self.refusals.append(text)
        self._way.complaints.tell(text, about=f"refused {cause}")

    def _fail(self, failure: Failure) -> None:
        text = str(failure.error)
        self.fault = failure
        if self._talk is not None and failure.kind not in {Kind.DENIED, Kind.OURS}:
            self._talk.leave()
        self._way.complaints.tell(f"{text}; the data stays in the spool", about=f"{failure.kind} {self.endpoint}")
        self._pause(failure)

    def _pause(self, failure: Failure | None) -> None:
        keys = len(self._way.keys())
        with self._changed:
            self._pauses.take_failure(failure, keys=keys)
