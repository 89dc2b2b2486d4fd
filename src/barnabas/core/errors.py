"""Errors carry their protocol code.

Code raises the class that says what went wrong; one dispatcher turns it into the number
that the client sees. An error that Kafka has no number for is a bug and is answered as
UNKNOWN_SERVER_ERROR; because Java producers may write a duplicate when they meet that
code, the produce path maps everything it can foresee.

Clients decide by the `retriable` flag whether to try again, so it is part of the contract:
the flags are Apache Kafka's.
"""

from __future__ import annotations

import re
from typing import ClassVar

NONE = 0
"""The code that means success."""


class KafkaError(Exception):
    """The root: subclasses name a protocol error code."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    by_code: ClassVar[dict[int, type[KafkaError]]] = {}

    record_errors: tuple[tuple[int, str], ...] = ()
    """Which records of a rejected batch are to blame, by position in it, and why."""

    def __init_subclass__(cls, *, code: int, retriable: bool = False) -> None:
        super().__init_subclass__()
        assert code not in KafkaError.by_code, f"error code {code} is declared twice"
        cls.code = code
        cls.retriable = retriable
        KafkaError.by_code[code] = cls

    @property
    def message(self) -> str:
        """What went wrong, for the client's eyes."""
        return str(self) or type(self).protocol_name()

    @classmethod
    def protocol_name(cls) -> str:
        """Kafka's own spelling of the error: `NotLeaderOrFollower` is NOT_LEADER_OR_FOLLOWER."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()


def error_for(code: int, message: str = "") -> KafkaError:
    """The error that a peer's response code stands for."""
    return KafkaError.by_code.get(code, UnknownServerError)(message)


def name_of(code: int) -> str:
    """The name of a response code, NONE included."""
    if code == NONE:
        return "NONE"
    known = KafkaError.by_code.get(code)
    return known.protocol_name() if known else f"ERROR_{code}"


class UnknownServerError(KafkaError, code=-1): ...


class OffsetOutOfRange(KafkaError, code=1): ...


class CorruptMessage(KafkaError, code=2, retriable=True): ...


class UnknownTopicOrPartition(KafkaError, code=3, retriable=True): ...


class InvalidFetchSize(KafkaError, code=4): ...


class LeaderNotAvailable(KafkaError, code=5, retriable=True): ...


class NotLeaderOrFollower(KafkaError, code=6, retriable=True): ...


class RequestTimedOut(KafkaError, code=7, retriable=True): ...


class BrokerNotAvailable(KafkaError, code=8): ...


class ReplicaNotAvailable(KafkaError, code=9, retriable=True): ...


class MessageTooLarge(KafkaError, code=10): ...


class StaleControllerEpoch(KafkaError, code=11): ...


class OffsetMetadataTooLarge(KafkaError, code=12): ...


class NetworkException(KafkaError, code=13, retriable=True): ...


class CoordinatorLoadInProgress(KafkaError, code=14, retriable=True): ...


class CoordinatorNotAvailable(KafkaError, code=15, retriable=True): ...


class NotCoordinator(KafkaError, code=16, retriable=True): ...


class InvalidTopicException(KafkaError, code=17): ...


class RecordListTooLarge(KafkaError, code=18): ...


class NotEnoughReplicas(KafkaError, code=19, retriable=True): ...


class NotEnoughReplicasAfterAppend(KafkaError, code=20, retriable=True): ...


class InvalidRequiredAcks(KafkaError, code=21): ...


class IllegalGeneration(KafkaError, code=22): ...


class InconsistentGroupProtocol(KafkaError, code=23): ...


class InvalidGroupId(KafkaError, code=24): ...


class UnknownMemberId(KafkaError, code=25): ...


class InvalidSessionTimeout(KafkaError, code=26): ...


class RebalanceInProgress(KafkaError, code=27): ...


class InvalidCommitOffsetSize(KafkaError, code=28): ...


class TopicAuthorizationFailed(KafkaError, code=29): ...


class GroupAuthorizationFailed(KafkaError, code=30): ...


class ClusterAuthorizationFailed(KafkaError, code=31): ...


class InvalidTimestamp(KafkaError, code=32): ...


class UnsupportedSaslMechanism(KafkaError, code=33): ...


class IllegalSaslState(KafkaError, code=34): ...


class UnsupportedVersion(KafkaError, code=35): ...


class TopicAlreadyExists(KafkaError, code=36): ...


class InvalidPartitions(KafkaError, code=37): ...


class InvalidReplicationFactor(KafkaError, code=38): ...


class InvalidReplicaAssignment(KafkaError, code=39): ...


class InvalidConfig(KafkaError, code=40): ...


class NotController(KafkaError, code=41, retriable=True): ...


class InvalidRequest(KafkaError, code=42): ...


class UnsupportedForMessageFormat(KafkaError, code=43): ...


class PolicyViolation(KafkaError, code=44): ...


class OutOfOrderSequenceNumber(KafkaError, code=45): ...


class DuplicateSequenceNumber(KafkaError, code=46): ...


class InvalidProducerEpoch(KafkaError, code=47): ...


class InvalidTxnState(KafkaError, code=48): ...


class InvalidProducerIdMapping(KafkaError, code=49): ...


class InvalidTransactionTimeout(KafkaError, code=50): ...


class ConcurrentTransactions(KafkaError, code=51, retriable=True): ...


class TransactionCoordinatorFenced(KafkaError, code=52): ...


class TransactionalIdAuthorizationFailed(KafkaError, code=53): ...


class SecurityDisabled(KafkaError, code=54): ...


class OperationNotAttempted(KafkaError, code=55): ...


class KafkaStorageError(KafkaError, code=56, retriable=True): ...


class LogDirNotFound(KafkaError, code=57): ...


class SaslAuthenticationFailed(KafkaError, code=58): ...


class UnknownProducerId(KafkaError, code=59): ...


class ReassignmentInProgress(KafkaError, code=60): ...


class DelegationTokenAuthDisabled(KafkaError, code=61): ...


class DelegationTokenNotFound(KafkaError, code=62): ...


class DelegationTokenOwnerMismatch(KafkaError, code=63): ...


class DelegationTokenRequestNotAllowed(KafkaError, code=64): ...


class DelegationTokenAuthorizationFailed(KafkaError, code=65): ...


class DelegationTokenExpired(KafkaError, code=66): ...


class InvalidPrincipalType(KafkaError, code=67): ...


class NonEmptyGroup(KafkaError, code=68): ...


class GroupIdNotFound(KafkaError, code=69): ...


class FetchSessionIdNotFound(KafkaError, code=70, retriable=True): ...


class InvalidFetchSessionEpoch(KafkaError, code=71, retriable=True): ...


class ListenerNotFound(KafkaError, code=72, retriable=True): ...


class TopicDeletionDisabled(KafkaError, code=73): ...


class FencedLeaderEpoch(KafkaError, code=74, retriable=True): ...


class UnknownLeaderEpoch(KafkaError, code=75, retriable=True): ...


class UnsupportedCompressionType(KafkaError, code=76): ...


class StaleBrokerEpoch(KafkaError, code=77): ...


class OffsetNotAvailable(KafkaError, code=78, retriable=True): ...


class MemberIdRequired(KafkaError, code=79): ...


class PreferredLeaderNotAvailable(KafkaError, code=80, retriable=True): ...


class GroupMaxSizeReached(KafkaError, code=81): ...


class FencedInstanceId(KafkaError, code=82): ...


class EligibleLeadersNotAvailable(KafkaError, code=83, retriable=True): ...


class ElectionNotNeeded(KafkaError, code=84, retriable=True): ...


class NoReassignmentInProgress(KafkaError, code=85): ...


class GroupSubscribedToTopic(KafkaError, code=86): ...


class InvalidRecord(KafkaError, code=87): ...


class UnstableOffsetCommit(KafkaError, code=88, retriable=True): ...


class ThrottlingQuotaExceeded(KafkaError, code=89, retriable=True): ...


class ProducerFenced(KafkaError, code=90): ...


class ResourceNotFound(KafkaError, code=91): ...


class DuplicateResource(KafkaError, code=92): ...


class UnacceptableCredential(KafkaError, code=93): ...


class InconsistentVoterSet(KafkaError, code=94): ...


class InvalidUpdateVersion(KafkaError, code=95): ...


class FeatureUpdateFailed(KafkaError, code=96): ...


class PrincipalDeserializationFailure(KafkaError, code=97): ...


class SnapshotNotFound(KafkaError, code=98): ...


class UnknownTopicId(KafkaError, code=100, retriable=True): ...


class DuplicateBrokerRegistration(KafkaError, code=101): ...


class BrokerIdNotRegistered(KafkaError, code=102): ...


class InconsistentTopicId(KafkaError, code=103, retriable=True): ...


class InconsistentClusterId(KafkaError, code=104): ...


class TransactionalIdNotFound(KafkaError, code=105): ...


class FetchSessionTopicIdError(KafkaError, code=106, retriable=True): ...


class IneligibleReplica(KafkaError, code=107): ...


class NewLeaderElected(KafkaError, code=108): ...


class OffsetMovedToTieredStorage(KafkaError, code=109): ...


class FencedMemberEpoch(KafkaError, code=110): ...


class UnreleasedInstanceId(KafkaError, code=111): ...


class UnsupportedAssignor(KafkaError, code=112): ...


class StaleMemberEpoch(KafkaError, code=113): ...


class MismatchedEndpointType(KafkaError, code=114): ...


class UnsupportedEndpointType(KafkaError, code=115): ...


class UnknownControllerId(KafkaError, code=116): ...


class UnknownSubscriptionId(KafkaError, code=117): ...


class TelemetryTooLarge(KafkaError, code=118): ...


class InvalidRegistration(KafkaError, code=119): ...


class TransactionAbortable(KafkaError, code=120): ...


class InvalidRecordState(KafkaError, code=121): ...


class ShareSessionNotFound(KafkaError, code=122, retriable=True): ...


class InvalidShareSessionEpoch(KafkaError, code=123, retriable=True): ...


class FencedStateEpoch(KafkaError, code=124): ...


class InvalidVoterKey(KafkaError, code=125): ...


class DuplicateVoter(KafkaError, code=126): ...


class VoterNotFound(KafkaError, code=127): ...


class InvalidRegularExpression(KafkaError, code=128): ...


class RebootstrapRequired(KafkaError, code=129): ...
