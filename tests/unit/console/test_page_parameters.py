"""Parameters and values that look like numbers and are none."""

from __future__ import annotations

import pytest

from barnabas.client.admin.topics_and_configs import Setting
from barnabas.console.html.elements import text
from barnabas.console.pages.group import _target
from barnabas.console.pages.topic import _plain
from barnabas.console.web.context import Refused
from barnabas.core.ids import TopicPartition


def setting(name: str, value: str | None) -> Setting:
    return Setting(name, value, "topic", is_default=False, is_read_only=False, is_sensitive=False)


@pytest.mark.parametrize("value", ["²", "--5", "-", "", None, "1" * 5_000, "1.5"])
def test_a_value_that_is_no_number_has_no_larger_unit(value: str | None) -> None:
    assert _plain(setting("retention.ms", value)) is None


def test_a_number_has_its_larger_unit() -> None:
    assert text(_plain(setting("retention.ms", "86400000"))) == "1 d"
    assert text(_plain(setting("retention.ms", "-1"))) == "no limit"


def test_a_target_of_a_reset_is_read() -> None:
    assert _target("a:b:7=12") == (TopicPartition("a:b", 7), 12)


@pytest.mark.parametrize(
    "damaged", ["", "orders", "orders:²=0", "orders:0=²", "orders:0=-1", ":0=1", "o:99999999999=0"]
)
def test_a_damaged_target_is_refused(damaged: str) -> None:
    with pytest.raises(Refused):
        _target(damaged)
