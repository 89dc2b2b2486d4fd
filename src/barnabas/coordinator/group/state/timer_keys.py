"""Keys of a group shard's timers."""

from __future__ import annotations


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)


def assignment_key(group_id: str) -> tuple[str, str]:
    return ("assignment", group_id)


def revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("revocation", group_id, member_id)


def member_join_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("member-join", group_id, member_id)


def member_sync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("member-sync", group_id, member_id)


def member_keys(group_id: str, member_id: str) -> list[tuple[str, str, str]]:
    return [
        session_key(group_id, member_id),
        revocation_key(group_id, member_id),
        member_join_key(group_id, member_id),
        member_sync_key(group_id, member_id),
    ]
