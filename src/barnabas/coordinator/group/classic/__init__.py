"""Classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
