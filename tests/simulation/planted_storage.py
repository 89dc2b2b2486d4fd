"""Planted bugs of what a broker keeps: compaction, syncs, indexes, disks, the embedded store, threads."""

from __future__ import annotations

from tests.support.planting import Bug, Edit

STORAGE_BUGS = (
    Bug(
        "compaction forgets aborted transactions behind a full map",
        "barnabas.storage.cleaner.cleaning",
        "_aborted_transactions(log, 0, target.first_uncleanable_offset)",
        "_aborted_transactions(log, 0, self.end_offset)",
    ),
    Bug(
        "compaction drops records that are not in the map",
        "barnabas.storage.cleaner.record_scan",
        "            if is_mapped and ((is_tombstone and drop_tombstones) or "
        "get(payload[key_at:key_end]) > offset):",
        "            if get(payload[key_at:key_end]) != offset or (is_tombstone and drop_tombstones):",
    ),
    Bug(
        "compaction maps aborted records",
        "barnabas.storage.cleaner.transactions",
        "        if batch.producer_id in self._aborted:\n"
        "            self._with_data.add(batch.producer_id)\n"
        "            return True\n",
        "",
    ),
    Bug(
        "an aborted transaction loses its index entry while its records stay",
        "barnabas.storage.cleaner.transactions",
        "        self.retained.append(entry)\n",
        "",
        (
            Edit(
                "barnabas.storage.cleaner.transactions",
                "            self._with_data.add(batch.producer_id)\n            return True\n",
                "            self._with_data.add(batch.producer_id)\n            return False\n",
            ),
        ),
    ),
    Bug(
        "a transaction index is not checked",
        "barnabas.storage.segment.transaction_index",
        "        if self.has_checksum and self._files.read(self.checksum_path) != self._checksum():\n",
        "        if False:\n",
        (
            Edit(
                "barnabas.storage.segment.transaction_index",
                "        last = self.base_offset - 1\n        for entry in entries:\n",
                "        last = self.base_offset - 1\n        for entry in entries[:0]:\n",
            ),
        ),
        trial="bits",
    ),
    Bug(
        "a follower claims records that it has not synced",
        "barnabas.replication.follower.followed_partition",
        "        return log.durable_end_offset >= log.log_end_offset\n",
        "        return True\n",
    ),
    Bug(
        "a lower min.insync.replicas does not move the high watermark",
        "barnabas.replication.replica_manager",
        "            if topic_partition.topic == topic and partition.maybe_advance_high_watermark():\n",
        "            if False:\n",
    ),
    Bug(
        "a bad bit cuts the store's log",
        "barnabas.cluster.embedded.journal",
        "            frame = _frame_at(second, position)\n",
        "            frame = None\n",
        (
            Edit(
                "barnabas.cluster.embedded.journal",
                "    if is_damaged:\n",
                "    if False:\n",
            ),
        ),
    ),
    Bug(
        "the store's copy is never written",
        "barnabas.cluster.embedded.journal",
        "        for file in (self._log, self._copy):\n            _write",
        "        for file in (self._log,):\n            _write",
    ),
    Bug(
        "the store's writes are not synced",
        "barnabas.cluster.embedded.journal",
        "            _write(file, self.log_bytes, frames)\n            file.sync()\n",
        "            _write(file, self.log_bytes, frames)\n",
    ),
    Bug(
        "a snapshot of the store is not read again",
        "barnabas.cluster.embedded.journal",
        "        tree, snapshot_bytes = _recover_snapshot(files, directory)\n",
        "        tree, snapshot_bytes = Tree(), 0\n",
    ),
    Bug(
        "the registration of a previous broker epoch stays in the store",
        "barnabas.cluster.embedded.session",
        "        if orphans:\n",
        "        if False:\n",
    ),
    Bug(
        "work for which there is no thread is refused",
        "barnabas.node.background_threads",
        "        except RuntimeError as error:\n            self._limited_log.warn(",
        "        except ZeroDivisionError as error:\n            self._limited_log.warn(",
        (
            Edit(
                "barnabas.core.steps",
                "except RuntimeError as refusal:",
                "except ZeroDivisionError as refusal:",
            ),
            Edit(
                "barnabas.cluster.embedded.session",
                "        except RuntimeError as error:\n"
                '            logger.warning("coordination store: write',
                "        except ZeroDivisionError as error:\n"
                '            logger.warning("coordination store: write',
            ),
        ),
    ),
    Bug(
        "a thread that could not start is not started again",
        "barnabas.node.background_threads",
        "            if not self._staying and self._retry is None:\n",
        "            if False:\n",
    ),
    Bug(
        "an outcome of background work is lost",
        "barnabas.node.background_threads",
        "                self._post(partial(self._deliver, failed, error))\n",
        "                pass\n",
    ),
    Bug(
        "a missing disk counts as a new one",
        "barnabas.storage.directory.known_directories",
        "    return {path: _missing(known[path]) for path in bare if path in known}\n",
        "    return {}\n",
    ),
    Bug(
        "producer ids are handed out twice",
        "barnabas.cluster.stores.topics",
        "        return last + 1\n\n    block",
        "        return max(last + 1 - PRODUCER_ID_BLOCK_SIZE, 0)\n\n    block",
    ),
    Bug(
        "reads of committed records end at the high watermark",
        "barnabas.replication.leader.partition_reading",
        "            until = min(upper_bound_offset(log, data), upper_offset)\n",
        "            until = offset\n",
    ),
)
