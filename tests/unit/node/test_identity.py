import pytest

from barnabas.core.errors import InconsistentClusterId, InvalidConfig
from barnabas.node.membership.identity import GENERATE, check_cluster_id, choose_broker_id, remembered
from barnabas.storage.directory.directory_properties import MetaProperties


def test_directories_that_agree_tell_who_we_are() -> None:
    mine = MetaProperties(broker_id=3, cluster_id="abc")
    known = remembered({"/a": mine, "/b": mine, "/fresh": None})
    assert (known.broker_id, known.cluster_id) == (3, "abc")


def test_directories_of_different_brokers_stop_the_start() -> None:
    with pytest.raises(InvalidConfig, match=r"3 in /a, 4 in /b"):
        remembered({"/a": MetaProperties(broker_id=3), "/b": MetaProperties(broker_id=4)})


def test_the_configured_id_must_be_the_remembered_one() -> None:
    assert choose_broker_id(GENERATE, 3) == 3
    assert choose_broker_id(3, 3) == 3
    assert choose_broker_id(7, None) == 7
    assert choose_broker_id(GENERATE, None) == GENERATE
    with pytest.raises(InvalidConfig, match="--broker-id 3"):
        choose_broker_id(7, 3)


def test_another_cluster_stops_the_start() -> None:
    check_cluster_id("abc", None)
    check_cluster_id("abc", "abc")
    with pytest.raises(InconsistentClusterId, match="xyz"):
        check_cluster_id("abc", "xyz")
