"""Mutated bytes at the greatest speed: seeds of every target in turn, some bytes changed, one call.

There is no feedback; the seeds are what declarations give. A hundred million inputs take minutes on a core,
where an engine that follows coverage (`guided`) takes hours. Both run the same targets.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tests.fuzz.target import Target

SPENT_S_MAX = 0.5
"""Of the processor, for one input of a few kilobytes."""
INPUT_BYTES_MAX = 4_096
ROUND = 64
"""Inputs of one target before the next has its turn."""

EXTREMES = (
    *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", b"\x7f\xff"),
    *(b"\xff" * 11, b"\0", b"\xed\xa0\x80", b"\xf0\x28", b"\0\0\0\0\0\0\0\0", b"\x80\x80\x80\x80\x08"),
)
MARKS = (*b"\"'`\\/*#=;:,.()[]{}<>\r\n\t \0%$&!-+0123456789", *"ß\u2028🐞".encode())


class Finding(NamedTuple):
    target: str
    data: bytes
    kind: str
    """The exception and where it was raised."""
    told: str
    inputs: int
    """That it took in this run, all targets together."""


def mutate(seed: bytes, random: Random, is_text: bool) -> bytes:
    data = bytearray(seed)
    bits = random.getrandbits
    for _ in range(1 + (bits(2) & bits(2))):
        size = len(data)
        at = bits(16) % (size + 1)
        choice = bits(3)
        if choice < 3:
            if at < size:
                data[at] = (
                    MARKS[bits(8) % len(MARKS)]
                    if is_text
                    else (bits(8) if choice else data[at] ^ 1 << bits(3))
                )
        elif choice == 3:
            extreme = EXTREMES[bits(8) % len(EXTREMES)]
            data[at : at + len(extreme)] = extreme
        elif choice == 4:
            del data[at : at + 1 + bits(3)]
        elif choice == 5:
            data[at:at] = bytes((MARKS[bits(8) % len(MARKS)],)) if is_text else random.randbytes(1 + bits(2))
        elif choice == 6:
            begin = bits(16) % (size + 1)
            data[at:at] = data[begin : begin + 1 + bits(5)] * (1 + bits(2))
        elif bits(1):
            del data[at:]
        else:
            data *= 1 + bits(1)
    return bytes(data[:INPUT_BYTES_MAX])


def attempt(target: Target, data: bytes, inputs: int) -> Finding | None:
    """Finding for one input, if any."""
    began_s = time.thread_time()
    try:
        target.run(data)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} in {last.name}"
        return Finding(target.name, data, kind, "".join(traceback.format_exception(error)), inputs)
    spent_s = time.thread_time() - began_s
    if spent_s > SPENT_S_MAX:
        return Finding(target.name, data, "slow", f"{len(data)} bytes take {spent_s:.2f} s", inputs)
    return None


def run_inputs(
    targets: Sequence[Target], count: int, seed: int, found: Callable[[Finding], bool], began: int = 0
) -> int:
    """So many inputs; `found` says whether to stop. Returns how many were run."""
    random = Random(seed)
    done = began
    # Messages are many and share their code; everything else would hardly have a turn.
    others = [target for target in targets if not target.name.endswith((" request", " response"))]
    # Valid inputs first: a decoder that refuses everything would pass otherwise.
    for target in targets:
        for each in target.seeds:
            done += 1
            finding = attempt(target, each, done)
            if finding is not None and found(finding):
                return done
    while done < count + began:
        chosen = targets if not others or random.getrandbits(1) else others
        target = chosen[random.getrandbits(24) % len(chosen)]
        run, is_text = target.run, target.is_text
        seeds = target.seeds
        began_s = time.thread_time()
        data = b""
        for _ in range(ROUND):
            data = mutate(seeds[random.getrandbits(16) % len(seeds)], random, is_text)
            done += 1
            try:
                run(data)
            except Exception:
                finding = attempt(target, data, done)
                if finding is not None and found(finding):
                    return done
        if time.thread_time() - began_s > SPENT_S_MAX and _slow_input(target, random, done, found):
            return done
    return done


def _slow_input(target: Target, random: Random, done: int, found: Callable[[Finding], bool]) -> bool:
    """Inputs of a target that took long as a round, one by one: which of them is slow by itself."""
    for _ in range(4 * ROUND):
        data = mutate(target.seeds[random.getrandbits(16) % len(target.seeds)], random, target.is_text)
        finding = attempt(target, data, done)
        if finding is not None:
            return found(finding)
    return False


def shrink(target: Target, finding: Finding) -> Finding:
    """As few bytes as fail in the same way."""
    smallest = finding
    size = max(len(finding.data) // 2, 1)
    while size:
        at = 0
        while at < len(smallest.data):
            fewer = smallest.data[:at] + smallest.data[at + size :]
            again = attempt(target, fewer, finding.inputs)
            if again is not None and again.kind == finding.kind:
                smallest = again
            else:
                at += size
        size //= 2
    return smallest
