"""Printing of a consumer's records."""

from __future__ import annotations

from typing import cast

import pytest

from barnabas.cli.records.record_lines import Formats, text_renderer
from barnabas.cli.records.record_printing import Printer, _ask
from barnabas.cli.records.value_formats import FORMATS
from barnabas.cli.support.exit_codes import Failure
from barnabas.client.admin.admin import Admin
from barnabas.client.extensions.records import Record
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition


def test_records_before_one_that_cannot_be_shown_are_printed(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    render = text_renderer(keys=False, headers=False, formats=Formats(value=FORMATS["json"]))
    values = enumerate([b"1", b"2", b"no json", b"3"])
    records = [Record("t", 0, offset, 0, None, value, ()) for offset, value in values]
    with pytest.raises(Failure, match="t-0 offset 2, value: 'no json' is not JSON"):
        Printer(render, count=None, timeout_s=None).print(records)
    assert capfdbinary.readouterr().out == b"1\n2\n"


class Refusing:
    """Admin client of a cluster without the topic."""

    async def list_offsets(self, partitions: object) -> None:
        raise UnknownTopicOrPartition("offsets of gone-0")


async def test_the_notice_of_a_silent_topic_names_the_error() -> None:
    """The topic may have been deleted, and the reader waits for ever."""
    fault = await _ask(cast("Admin", Refusing()), [TopicPartition("gone", 0)])
    assert fault == "offsets of gone-0 (UNKNOWN_TOPIC_OR_PARTITION)"
