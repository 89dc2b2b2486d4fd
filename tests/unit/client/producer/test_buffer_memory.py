"""Memory of the producer: bounded, fair, and waking as many senders as there is room for."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.producer.core.buffer_memory import BufferMemory, Waiter
from barnabas.core.errors import MessageTooLarge


def test_a_sender_waits_when_the_memory_is_used_up() -> None:
    memory = BufferMemory(100)
    assert memory.take(60)
    assert not memory.take(60)
    assert memory.available_bytes == 40


def test_room_wakes_as_many_senders_as_fit_and_no_more() -> None:
    memory = BufferMemory(100)
    assert memory.take(100)
    woken: list[int] = []
    waiters = [memory.wait(30, partial(woken.append, number)) for number in range(5)]
    memory.give_back(70)
    assert woken == [0, 1]
    assert [each.granted for each in waiters] == [True, True, False, False, False]
    memory.give_back(30)
    assert woken == [0, 1, 2]
    assert memory.available_bytes == 10


def test_a_newcomer_does_not_overtake_the_line() -> None:
    memory = BufferMemory(100)
    assert memory.take(100)
    memory.wait(90, lambda: None)
    memory.give_back(50)
    assert not memory.take(10)


def test_a_waiter_that_leaves_makes_room_for_those_behind_it() -> None:
    memory = BufferMemory(100)
    assert memory.take(100)
    woken: list[str] = []
    large = memory.wait(90, partial(woken.append, "large"))
    memory.wait(40, partial(woken.append, "small"))
    memory.give_back(50)
    assert woken == []
    memory.leave(large)
    assert woken == ["small"]


def test_a_waiter_that_leaves_after_its_grant_gives_the_room_back() -> None:
    memory = BufferMemory(100)
    assert memory.take(100)
    waiter = memory.wait(100, lambda: None)
    memory.give_back(100)
    assert waiter.granted
    memory.leave(waiter)
    memory.leave(waiter)
    assert memory.available_bytes == 100


def test_a_record_larger_than_the_memory_is_refused() -> None:
    memory = BufferMemory(100)
    with pytest.raises(MessageTooLarge, match=r"buffer\.memory"):
        memory.take(101)
    with pytest.raises(MessageTooLarge, match=r"buffer\.memory"):
        memory.wait(101, lambda: None)


@given(st.lists(st.tuples(st.sampled_from(["take", "back", "leave"]), st.integers(1, 50)), max_size=100))
def test_memory_is_never_given_twice_and_the_line_moves(steps: list[tuple[str, int]]) -> None:
    memory = BufferMemory(100)
    held: list[int] = []
    line: list[Waiter] = []
    for kind, number in steps:
        if kind == "take":
            if memory.take(number):
                held.append(number)
            else:
                line.append(memory.wait(number, lambda: None))
        elif kind == "back" and held:
            memory.give_back(held.pop(number % len(held)))
        elif kind == "leave" and line:
            memory.leave(line.pop(number % len(line)))
        for waiter in [each for each in line if each.granted]:
            line.remove(waiter)
            held.append(waiter.size_bytes)
        assert memory.available_bytes == 100 - sum(held) >= 0
        assert memory.waiting == len(line)
        assert not line or line[0].size_bytes > memory.available_bytes, "the first in line waits for nothing"
