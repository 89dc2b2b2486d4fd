"""The bugs that are planted: the mistakes that engineers make in brokers, each a small change to a module."""

from __future__ import annotations

from tests.simulation.planted_client import CLIENT_BUGS
from tests.simulation.planted_storage import STORAGE_BUGS
from tests.simulation.planted_trials import TRIAL_BUGS
from tests.support.planting import Bug, Edit

BUGS = (
    Bug(
        "the high watermark is one too high",
        "barnabas.replication.partition.followers",
        "            end_offset = follower.end_offset\n    return end_offset",
        "            end_offset = follower.end_offset + 1\n    return end_offset",
    ),
    Bug(
        "the high watermark waits for no follower",
        "barnabas.replication.partition.followers",
        "            end_offset = follower.end_offset\n    return end_offset",
        "            pass\n    return end_offset",
    ),
    Bug(
        "a write is acknowledged before it is replicated",
        "barnabas.replication.leader.delayed_produce",
        "elif partition.is_acknowledged(ack.end_offset, self._required_acks):",
        "elif True:",
    ),
    Bug(
        "a lease never ends",
        "barnabas.replication.partition.lease",
        "            and self._now_ms() < self._expires_ms()\n",
        "",
    ),
    Bug(
        "an election does not raise the epoch",
        "barnabas.controller.machines.leader_selection",
        "def _led_by(leader: int, state: PartitionState, isr: tuple[int, ...]) -> PartitionState:\n"
        "    return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)\n",
        "def _led_by(leader: int, state: PartitionState, isr: tuple[int, ...]) -> PartitionState:\n"
        "    return state._replace(leader=leader, isr=isr)\n",
    ),
    Bug(
        "a follower does not truncate records that its leader lacks",
        "barnabas.replication.follower.truncation",
        "return min(end_offset, leader.end_offset, log_end_offset)",
        "return log_end_offset",
    ),
    Bug(
        "a follower joins the ISR before it has caught up",
        "barnabas.replication.partition.partition",
        "            and follower.end_offset >= self.log.high_watermark\n"
        "            and follower.end_offset >= self.leader_epoch_start_offset\n",
        "",
    ),
    Bug(
        "a duplicate batch is written again",
        "barnabas.storage.producers.append_checks",
        "        duplicate = entry.find_duplicate(batch)\n        if duplicate is not None:\n"
        "            return duplicate",
        "        return None",
    ),
    Bug(
        "elections are unclean",
        "barnabas.controller.machines.leader_selection",
        "    if unclean:\n",
        "    if True:\n",
    ),
    Bug(
        "the last stable offset is the high watermark",
        "barnabas.storage.log.parts.watermarks",
        "return min(max(first_unstable_offset, self.log_start_offset), self.high_watermark)",
        "return self.high_watermark",
    ),
    Bug(
        "markers for other brokers always say commit",
        "barnabas.coordinator.transaction.markers.cluster",
        "transaction_result=marker.is_commit,",
        "transaction_result=True,",
    ),
    Bug(
        "a marker that could not be sent counts as written",
        "barnabas.coordinator.transaction.markers.cluster",
        "return dict.fromkeys(partitions, error)",
        "return {}",
    ),
    Bug(
        "a broker with a new session does not register again",
        "barnabas.node.membership.broker_registration",
        "            self._returns.start(self._return())\n",
        "",
    ),
    Bug(
        "watches of children are lost",
        "barnabas.cluster.zookeeper.session",
        "            self._watches.fire((WatchEvent(kind, own),))",
        "            if kind is not EventType.CHILD:\n"
        "                self._watches.fire((WatchEvent(kind, own),))",
    ),
    Bug(
        "a new controller does not see brokers that restarted",
        "barnabas.controller.term",
        "            await self._leave_out_returned(",
        "            len(",
    ),
    Bug(
        "requests of a previous controller are carried out",
        "barnabas.replication.controller_orders",
        "        if epoch < self.controller_epoch:\n",
        "        if False:\n",
        (
            Edit(
                "barnabas.replication.controller_orders",
                "    if state.leader_epoch < leader_epoch or (\n",
                "    if False and (\n",
            ),
        ),
    ),
    # Replication
    Bug(
        "an ISR that shrinks counts before the store has confirmed it",
        "barnabas.replication.partition.leadership",
        "        self.maximal_isr = self.isr | isr\n",
        "        self.maximal_isr = isr\n        self.isr = isr\n",
    ),
    Bug(
        "a follower about to join does not hold the high watermark back",
        "barnabas.replication.partition.leadership",
        "        self.maximal_isr = self.isr | isr\n",
        "        self.maximal_isr = self.isr & isr\n",
    ),
    Bug(
        "min.insync.replicas is ignored",
        "barnabas.replication.partition.partition",
        "        return len(leadership.isr) >= min("
        "self.log.config.min_insync_replicas, len(leadership.replicas))",
        "        return True",
    ),
    Bug(
        "a new session restores leaderships of the old one",
        "barnabas.replication.partition.lease",
        "            confirmed_epoch is not None\n"
        "            and confirmed_epoch == self._registered_epoch()\n"
        "            and self._now_ms",
        "            confirmed_epoch is not None\n            and self._now_ms",
    ),
    Bug(
        "a follower truncates its log at its high watermark",
        "barnabas.replication.follower.replica_fetcher",
        "        if log.leader_epochs.latest_epoch == NO_EPOCH and "
        "log.log_end_offset > log.log_start_offset:\n",
        "        if log.log_end_offset > log.log_start_offset:\n",
    ),
    Bug(
        "records of an unknown epoch are kept (KIP-279)",
        "barnabas.replication.follower.truncation",
        "        return min(end_offset, log_end_offset)\n    return",
        "        return min(leader.end_offset, log_end_offset)\n    return",
    ),
    Bug(
        "a new leader does not know where previous epochs end",
        "barnabas.replication.partition.partition",
        "            return (epoch if latest == NO_EPOCH else latest), log.log_end_offset\n",
        "            return NO_EPOCH, NO_OFFSET\n",
    ),
    Bug(
        "a follower refuses batches that do not fit into a segment",
        "barnabas.storage.log.log",
        "        for piece in divided(batches, self.config.segment_bytes):\n",
        "        if len(view) > self.config.segment_bytes:\n"
        '            raise RecordListTooLarge("")\n'
        "        for piece in divided(batches, self.config.segment_bytes):\n",
    ),
    # Storage
    Bug(
        "a flush is not awaited",
        "barnabas.storage.log.parts.flush_state",
        "        return max(self.recovery_point, self._acknowledgeable) if self.is_due else log_end_offset",
        "        return log_end_offset",
    ),
    Bug(
        "records are not synced by a flush",
        "barnabas.storage.log.parts.flush_state",
        "            for file in self.data_files:\n"
        "                if isinstance(file, str):\n"
        "                    self.log_path.sync(self.files, file)\n"
        "                else:\n"
        "                    file.sync()\n",
        "",
    ),
    Bug(
        "a new segment's name is not synced",
        "barnabas.storage.log.parts.flush_state",
        "            elif self.is_directory_changed:\n"
        "                self.files.sync_directory(self.log_path.directory)\n",
        "",
    ),
    Bug(
        "the name of a log directory is not synced",
        "barnabas.node.membership.identity",
        "            files.make_lasting_directory(path)\n",
        "            files.make_directory(path)\n",
    ),
    Bug(
        "recovery treats a gap left by compaction as damage",
        "barnabas.storage.loading.segment_recovery",
        "        if batch.base_offset < end_offset or last_offset > largest_offset:",
        "        if batch.base_offset != end_offset or last_offset > largest_offset:",
    ),
    Bug(
        "recovery does not check records",
        "barnabas.storage.segment.batch_scan",
        "        return batch if valid and batch.is_valid_crc else None\n",
        "        return batch if valid else None\n",
    ),
    Bug(
        "producers are forgotten when a segment is rolled",
        "barnabas.storage.log.log",
        "            self.segments.add(segment)\n            self.flush_state.names_changed(",
        "            self.segments.add(segment)\n"
        "            self.producers.producers = {\n"
        "                key: each\n"
        "                for key, each in self.producers.producers.items()\n"
        "                if each.current_txn_first_offset >= 0\n"
        "            }\n"
        "            self.flush_state.names_changed(",
    ),
    Bug(
        "a truncated log remembers the producers of truncated records",
        "barnabas.storage.log.truncation",
        "    log.leader_epochs.truncate_from_end(offset)\n    log.replace_producers(producers)\n",
        "    log.leader_epochs.truncate_from_end(offset)\n",
    ),
    Bug(
        "a compacted segment gets its name before it is synced",
        "barnabas.storage.cleaner.writer",
        "        for path in segment.existing_paths():\n            self._files.sync(path)\n",
        "        del segment\n",
    ),
    Bug(
        "compaction drops tombstones at once",
        "barnabas.storage.cleaner.batch_filter",
        "drop_tombstones=batch.has_delete_horizon and self._now_ms >= batch.base_timestamp,",
        "drop_tombstones=True,",
    ),
    Bug(
        "compaction drops the last value of a key",
        "barnabas.storage.cleaner.record_scan",
        "get(payload[key_at:key_end]) > offset):",
        "get(payload[key_at:key_end]) >= offset):",
    ),
    Bug(
        "the checkpoint of deleted records is not read again",
        "barnabas.storage.directory.directory_opening",
        "            log_start_offset=checkpointed.get(checkpoints.LOG_START_OFFSETS, 0),",
        "            log_start_offset=0,",
    ),
    Bug(
        "the log start offset is forgotten before deleted segments are off the disk",
        "barnabas.storage.directory.directory_checkpoints",
        "    return log.log_start_offset if is_moved or not log.flush_state.are_names_synced else None\n",
        "    return log.log_start_offset if is_moved else None\n",
    ),
    Bug(
        "a missing file descriptor counts as a failed disk",
        "barnabas.replication.controller_orders",
        "        if refused:\n",
        "        if False:\n",
    ),
    Bug(
        "a log that could not be created is created in another directory",
        "barnabas.storage.log_manager",
        "            self._begun[topic_partition] = BegunLog(topic_partition, log_directory, path)\n"
        "            try:\n",
        "            try:\n",
        (
            Edit(
                "barnabas.storage.log_manager",
                "            del self._begun[topic_partition]\n            self.cleaner.forget(log)",
                "            self.cleaner.forget(log)",
            ),
        ),
    ),
    Bug(
        "a follower gives up a partition for lack of a file descriptor",
        "barnabas.storage.log.log",
        "        except OSError as error:  # the first append after a start reads the file\n",
        "        except ZeroDivisionError as error:\n",
    ),
    # Transactions
    Bug(
        "the last stable offset is one too high",
        "barnabas.storage.log.parts.watermarks",
        "return min(max(first_unstable_offset, self.log_start_offset), self.high_watermark)",
        "return min(max(first_unstable_offset + 1, self.log_start_offset), self.high_watermark)",
    ),
    Bug(
        "a partition whose leader does not answer counts as deleted",
        "barnabas.coordinator.transaction.markers.cluster",
        "        deleted = await self._find_deleted(doubtful)\n",
        "        deleted = frozenset(doubtful)\n",
    ),
    Bug(
        "a partition without a leader needs no marker",
        "barnabas.coordinator.transaction.markers.cluster",
        '                errors[each] = LeaderNotAvailable(f"{each} has no leader")\n',
        "                continue\n",
    ),
    Bug(
        "a fence is missing: a producer that was replaced may end its successor's transaction",
        "barnabas.coordinator.transaction.state.rules",
        "    else:\n        _check_newest(metadata, producer)\n",
        "    else:\n",
    ),
    Bug(
        "a verified write is made although its transaction has ended",
        "barnabas.coordinator.transaction.verification.verification_guard",
        "            raise self._outside\n",
        "            return\n",
    ),
    Bug(
        "writes are not verified with the coordinator",
        "barnabas.coordinator.transaction.shard",
        "        return Decision(partitions - metadata.partitions)\n",
        "        return Decision(frozenset())\n",
    ),
    Bug(
        "a transaction that times out is not aborted",
        "barnabas.coordinator.transaction.shard",
        "        return self._prepare(fenced(metadata, now_ms), None)\n",
        "        return Decision()\n",
    ),
    Bug(
        "a transaction that times out keeps its producer epoch",
        "barnabas.coordinator.transaction.state.metadata",
        "        state=PREPARE_ABORT,\n        producer_epoch=metadata.producer_epoch + 1,\n",
        "        state=PREPARE_ABORT,\n        producer_epoch=metadata.producer_epoch,\n",
    ),
    Bug(
        "a transaction that a previous coordinator prepared is not completed",
        "barnabas.coordinator.transaction.shard",
        "            if metadata.state in PREPARED:\n"
        "                self._completions.start_later(metadata.transactional_id, 0)\n",
        "            pass\n",
    ),
    Bug(
        "a producer's last epoch cannot be fenced",
        "barnabas.coordinator.transaction.state.metadata",
        "EPOCH_MAX: Final = (1 << 15) - 1\nLAST_EPOCH_FOR_PRODUCERS: Final = EPOCH_MAX - 1\n",
        "EPOCH_MAX: Final = 1\nLAST_EPOCH_FOR_PRODUCERS: Final = EPOCH_MAX\n",
        (
            Edit(
                "barnabas.coordinator.transaction.state.metadata",
                "        return replace(\n"
                "            metadata, state=PREPARE_ABORT, last_update_timestamp_ms=now_ms,"
                " client_transaction_version=0\n        )\n",
                "        raise AssertionError\n",
            ),
            Edit(
                "barnabas.coordinator.transaction.state.rules",
                "    if metadata.producer_epoch == EPOCH_MAX:\n",
                "    if metadata.producer_epoch < 0:\n",
            ),
        ),
    ),
    # Groups
    Bug(
        "a coordinator answers before its record is replicated",
        "barnabas.coordinator.runtime.log",
        "        if partition.is_acknowledged(end_offset, ACKS_ALL):\n",
        "        if True:\n",
    ),
    Bug(
        "a member that has left may commit",
        "barnabas.coordinator.group.offsets.checks",
        "    member = group.member(member_id)\n    if api_version",
        "    if member_id not in group.members:\n        return\n"
        "    member = group.member(member_id)\n    if api_version",
    ),
    Bug(
        "a partition is assigned before its owner has revoked it",
        "barnabas.coordinator.group.consumer.reconciliation",
        "        free = frozenset(partition for partition in missing if not is_owned(topic_id, partition))\n",
        "        free = missing\n",
    ),
    Bug(
        "the offsets of a deleted topic are removed in one batch, whose failure is ignored",
        "barnabas.coordinator.group.offsets.expiry",
        "        records = [OffsetRecord(group, topic, partition, None) for group, partition in found]\n"
        "        return Decision(len(records) < OFFSETS_PER_TURN, records, is_atomic=False)\n",
        "        records = [OffsetRecord(group, topic, partition, None) for group, partition in found]\n"
        "        return Decision(True, records if len(records) < 8 else [])\n",
        (
            Edit(
                "barnabas.coordinator.group.offsets.records",
                "    return topic_id != ZERO_UUID and topic_id_of(packed) not in (topic_id, ZERO_UUID)\n",
                "    return False\n",
            ),
        ),
    ),
    # The controller
    Bug(
        "a controller's node that cannot be read is an error",
        "barnabas.controller.controller",
        '    except MalformedZnode as error:\n        logger.error("%s cannot be read',
        '    except ZeroDivisionError as error:\n        logger.error("%s cannot be read',
    ),
    # The sink of pipelines
    Bug(
        "every attempt at a task may write into the batch's transaction",
        "pyspark_barnabas.writers.attempts.claims",
        "        self._may_ask = attempt == 0\n",
        "        self._may_ask = attempt >= 0\n",
        (
            Edit(
                "pyspark_barnabas.writers.attempts.claims",
                "                return False\n            cluster.run(transactions.add_partitions",
                "                return True\n            cluster.run(transactions.add_partitions",
            ),
        ),
    ),
    Bug(
        "a sink commits offsets of a source that its cluster does not have",
        "pyspark_barnabas.writers.journal",
        "        if topic_partition.partition < counts.get(topic_partition.topic, 0)\n",
        "        if counts is not None\n",
    ),
    *STORAGE_BUGS,
    *TRIAL_BUGS,
    *CLIENT_BUGS,
)
