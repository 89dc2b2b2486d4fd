from barnabas.core.errors import (
    InvalidTopicException,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
    error_for,
    name_of,
)


def test_codes_names_and_classes_agree() -> None:
    assert NotLeaderOrFollower.code == 6
    assert NotLeaderOrFollower.retriable
    assert name_of(6) == "NOT_LEADER_OR_FOLLOWER"
    assert name_of(17) == "INVALID_TOPIC_EXCEPTION"
    assert name_of(0) == "NONE"
    assert isinstance(error_for(6), NotLeaderOrFollower)
    assert isinstance(error_for(31_000), UnknownServerError)


def test_an_error_without_words_says_its_name() -> None:
    assert NotLeaderOrFollower().message == "NOT_LEADER_OR_FOLLOWER"
    assert NotLeaderOrFollower("moved").message == "moved"


def test_a_message_that_quotes_something_long_fits_into_a_string_of_the_protocol() -> None:
    assert InvalidTopicException("x" * 8_000).message == "x" * 8_000
    message = InvalidTopicException(f"no such topic: {'🐞' * 32_767}").message
    assert message.startswith("no such topic: 🐞")
    assert len(message.encode()) <= 32_767


def test_names_and_codes_are_those_of_kio() -> None:
    from kio.schema.errors import ErrorCode

    for known in ErrorCode:
        ours = KafkaError.by_code.get(known.value)
        if ours is not None:
            assert ours.protocol_name() == known.name.upper()
            assert ours.retriable == known.retriable
