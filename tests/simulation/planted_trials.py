"""Planted bugs that a trial is for: moves, bad disks, compaction, the embedded store, uncommon clients.

Each names the trial with which the seeds of its hunt end.
"""

from __future__ import annotations

from tests.support.planting import Bug, Edit

TRIAL_BUGS = (
    # Syncs
    Bug(
        "an unsynced tail is not checked after a kill",
        "barnabas.storage.loading.log_loader",
        "            recovery_point=end_offset if is_settled else min(recovery_point, end_offset),\n",
        "            recovery_point=end_offset,\n",
        trial="retry",
    ),
    Bug(
        "a duplicate batch is acknowledged without a sync",
        "barnabas.storage.log.parts.flush_state",
        "        self.is_due = log_end_offset - recovery_point >= flush_messages\n"
        '        """Whether `flush.messages`',
        '        self.is_due = False\n        """Whether `flush.messages`',
        (
            Edit(
                "barnabas.storage.log.log",
                "        if not self.is_closed and self.unflushed_messages >= config.flush_messages:\n",
                "        if False:\n",
            ),
        ),
        trial="retry",
    ),
    # Compaction
    Bug(
        "compaction beyond the last stable offset",
        "barnabas.storage.cleaner.cleanable",
        "    limit_offset = log.last_stable_offset\n",
        "    limit_offset = log.high_watermark\n",
        trial="undecided",
    ),
    Bug(
        "the offset map counts as the whole log",
        "barnabas.storage.cleaner.cleaning",
        "            self.end_offset = offsets.latest_offset + 1\n",
        "            offsets.latest_offset = target.first_uncleanable_offset - 1\n"
        "            self.end_offset = target.first_uncleanable_offset\n",
        trial="graves",
    ),
    Bug(
        "a full map counts as the end of the clean part",
        "barnabas.storage.cleaner.cleaning",
        "            yield from self._rewrite(offsets, check)\n",
        "            yield from self._rewrite(offsets, check)\n"
        "            self.end_offset = target.first_uncleanable_offset\n",
        trial="graves",
    ),
    # Moves between log directories
    Bug(
        "a copy replaces its log without the high watermark",
        "barnabas.storage.directory.future_logs",
        "        future.update_high_watermark(old.high_watermark)\n",
        "",
        trial="relocation",
    ),
    Bug(
        "a copy replaces its log before it is synced",
        "barnabas.storage.directory.future_logs",
        "        future.flush()\n        future.update_config",
        "        future.update_config",
        (
            Edit(
                "barnabas.replication.log_dir_mover",
                "        work = future.plan_flush()\n",
                "        work = None\n",
            ),
        ),
        trial="relocation",
    ),
    Bug(
        "the log start offset of a moved log is not written",
        "barnabas.storage.log_manager",
        "        self._checkpoints.write_start_offset_of_copy(future)\n",
        "",
        trial="relocation",
    ),
    Bug(
        "a log that has moved keeps its name until the next start",
        "barnabas.storage.log_manager",
        "        self._set_aside(topic_partition, DELETE_DIRECTORY)\n        self._add(log)\n",
        "        old.release()\n        self.cleaner.forget(old)\n        self._add(log)\n",
        (
            Edit(
                "barnabas.storage.directory.future_logs",
                '            files.replace(f"{old.directory}/{SUPERSEDED}", b"")\n',
                "            pass\n",
            ),
        ),
        trial="relocation",
    ),
    Bug(
        "a log is compacted while it moves",
        "barnabas.storage.log_manager",
        "            is_moving=lambda log: self._futures.get(log.topic_partition) is not None,\n",
        "",
        trial="relocation",
    ),
    # Disks
    Bug(
        "an entry of an offset index is believed",
        "barnabas.storage.segment.segment",
        "        return find_batch(self.file, position, self.size_bytes, offset, indexed_offset)\n",
        "        return find_batch(self.file, position, self.size_bytes, offset, indexed_offset * 0 - 1)\n",
        trial="bits",
    ),
    Bug(
        "a producer snapshot is believed as it is",
        "barnabas.storage.producers.producer_snapshot",
        "        if crc != crc32c(memoryview(content)[_ENTRIES_AT:]):\n",
        "        if False:\n",
        trial="bits",
    ),
    Bug(
        "an unreadable log keeps leading",
        "barnabas.node.broker",
        "        self._member.log_directory_failed([topic_partition])\n",
        "",
        trial="unreadable",
    ),
    Bug(
        "an entry of a time index is not checked",
        "barnabas.storage.segment.segment",
        "                if header is None or header.max_timestamp != known[0]:\n",
        "                if header is None:\n",
        trial="bits",
    ),
    Bug(
        "a broker does not start with a damaged checkpoint",
        "barnabas.storage.files.checkpoints",
        '        logger.warning("ignoring damaged checkpoint %s: %s", path, error)\n        return {}\n',
        "        raise\n",
        trial="bits",
    ),
    # The embedded store
    Bug(
        "a snapshot of the store is not synced before its log is emptied",
        "barnabas.cluster.embedded.journal",
        '        files.replace(f"{directory}/{name}", snapshot)\n',
        '        files.write(f"{directory}/{name}", snapshot)\n',
        trial="ledger",
    ),
    Bug(
        "the store acknowledges before it writes",
        "barnabas.cluster.embedded.session",
        "        self._begin_writing()\n        self._append(frames, batch)\n",
        "        self._finish(batch)\n        self._begin_writing()\n        self._append(frames, [])\n",
        trial="ledger",
    ),
    Bug(
        "a store that cannot write any more keeps its sessions",
        "barnabas.cluster.embedded.session",
        "        for session in tuple(self._sessions):\n            session.lose()\n",
        "",
        trial="ledger",
    ),
    Bug(
        "the store writes to its log while it is compacted",
        "barnabas.cluster.embedded.session",
        "        snapshot = encode_snapshot(self._tree)\n        self._begin_writing()\n",
        "        snapshot = encode_snapshot(self._tree)\n",
        trial="ledger",
    ),
    # Replication
    Bug(
        "a busy partition stays in front of the others without a fetch session",
        "barnabas.replication.follower.fetch_session",
        "        self._wanted.pop(key, None)\n        self._changed.pop(key, None)\n"
        "        self._wanted[key] = self._changed[key] = followed\n",
        "        self._wanted[key] = self._changed[key] = followed\n",
        trial="crowd",
    ),
    Bug(
        "a follower serves uncommitted records",
        "barnabas.replication.leader.partition_reading",
        "    upper_offset = readable_end(log, params)\n",
        "    upper_offset = readable_end(log, params)\n"
        "    if not partition.leadership.is_leader:\n"
        "        upper_offset = log.log_end_offset\n",
        trial="nearby",
    ),
    Bug(
        "a reader is sent to a replica that is not in sync",
        "barnabas.replication.leader.replica_selector",
        "                broker_id in partition.leadership.isr\n                and follower",
        "                follower",
        trial="nearby",
    ),
    # Old clients
    Bug(
        "compressed messages for old readers are one offset too far",
        "barnabas.records.legacy",
        "    wrapper = Record(last_offset, latest, None, compressed)\n",
        "    wrapper = Record(last_offset + 1, latest, None, compressed)\n",
        trial="elderly",
    ),
    Bug(
        "an old reader misses the record that it asks for",
        "barnabas.records.legacy",
        "        if record.offset < first_offset:\n            continue\n        if not messages",
        "        if record.offset <= first_offset:\n            continue\n        if not messages",
        trial="elderly",
    ),
    Bug(
        "old readers get markers for records",
        "barnabas.records.legacy",
        "        if view.is_control:\n            continue\n",
        "",
        trial="elderly",
    ),
    Bug(
        "a compressed set of old messages becomes its first record",
        "barnabas.records.legacy",
        "    for each in iterate_messages(inflated):\n        timestamp =",
        "    for each in list(iterate_messages(inflated))[:1]:\n        timestamp =",
        trial="elderly",
    ),
    # Quotas
    Bug(
        "a client is charged for bytes that it did not receive",
        "barnabas.quota.client_quotas",
        "        rate.record(-size_bytes, now_ms)\n",
        "",
        trial="throttled",
    ),
    Bug(
        "a batch that is larger than the quota is never sent",
        "barnabas.quota.client_quotas",
        "        if size_bytes > self.fetch_bytes_max(user, client_id) and rate.value(now_ms) <= limit:\n",
        "        if False:\n",
        trial="throttled",
    ),
    Bug(
        "a throttled connection is not read again",
        "barnabas.network.connection",
        "        self._stops -= 1\n        self._unpause()\n\n    def _flush",
        "        self._stops -= 1\n\n    def _flush",
        trial="throttled",
    ),
    Bug(
        "clients with quotas of their own share one meter",
        "barnabas.quota.client_quotas",
        "        yield (EntityPart(CLIENTS, of_client),), (key, None, client)\n",
        "        yield (EntityPart(CLIENTS, of_client),), (key, None, None)\n",
        trial="throttled",
    ),
    # Users and rules
    Bug(
        "brokers read access rules only at the start",
        "barnabas.cluster.stores.acl_replica",
        "            names = await self._znodes.children(parent, lambda _: look())\n",
        "            names = await self._znodes.children(parent)\n",
        trial="users",
    ),
    Bug(
        "a removed access rule stays in force at other brokers",
        "barnabas.cluster.stores.acl_replica",
        "                else:\n                    self.authorizer.replace(pattern, rules)\n",
        "                elif rules:\n                    self.authorizer.replace(pattern, rules)\n",
        trial="users",
    ),
    # Changes that brokers learn from each other
    Bug(
        "change notifications expire by the clock of a broker",
        "barnabas.cluster.stores.change_notifications",
        "        oldest_ms = max(created_ms.values(), default=0) - NOTIFICATION_LIFETIME_MS\n"
        "        settled_ms = now_ms - self._znodes.session_timeout_ms\n",
        "        oldest_ms = self._clock.now_ms() - NOTIFICATION_LIFETIME_MS\n        settled_ms = now_ms\n",
        trial="notices",
    ),
    Bug(
        "a change of a topic's settings starts from the copy of a broker",
        "barnabas.config.dynamic.repository",
        "            overrides = decide(self._overrides.get(topic, {}) if stored is None else stored)\n",
        "            overrides = decide(self._overrides.get(topic, {}))\n",
        trial="notices",
    ),
    Bug(
        "settings are written whatever another broker has written meanwhile",
        "barnabas.cluster.stores.topics",
        "SetData(path, data, node[1].version)\n        try:\n            await znodes.multi([*conditions",
        "SetData(path, data)\n        try:\n            await znodes.multi([*conditions",
        trial="notices",
    ),
    Bug(
        "settings are not read again after a session",
        "barnabas.administration.config_notifications",
        "        self._is_unsure = True\n        self._look()\n",
        "        self._look()\n",
        trial="notices",
    ),
    Bug(
        "brokers hear of a delegation token after a start only",
        "barnabas.cluster.stores.delegation_tokens",
        "        names = await self._znodes.children(TokenChangeZnode.PARENT, lambda _: look())\n",
        "        names = await self._znodes.children(TokenChangeZnode.PARENT)\n",
        trial="tokens",
    ),
    Bug(
        "an expired delegation token lives on at other brokers",
        "barnabas.cluster.stores.delegation_tokens",
        "            for gone in self._known.keys() - ids:\n",
        "            for gone in ():\n",
        trial="tokens",
    ),
    Bug(
        "a renewed delegation token keeps its time at other brokers",
        "barnabas.cluster.stores.delegation_tokens",
        "                elif known is None or known.mzxid != node[1].mzxid:\n",
        "                elif known is None:\n",
        trial="tokens",
    ),
    # The source of pipelines
    Bug(
        "a topic that was created again counts as the one that was read",
        "pyspark_barnabas.readers.offsets",
        "    return sorted(topic for topic, known in before.items() if now.get(topic, known) != known)\n",
        "    return sorted(topic for topic in before if topic not in now and not now)[:0]\n",
        trial="source",
    ),
    Bug(
        "the journal does not hold the ids of topics",
        "pyspark_barnabas.readers.offsets",
        "    return {**tree, TOPIC_IDS: known} if known else tree\n",
        "    return tree if known else tree\n",
        trial="source",
    ),
    # Services of pipelines
    Bug(
        "a change of a pipeline starts from the copy of a service",
        "barnabas.pipelines.service.service",
        "        await self._store.caught_up()\n",
        "",
        trial="services",
    ),
    Bug(
        "the silence of a service is measured by the wall clock",
        "barnabas.pipelines.service.leadership",
        "        elif self._clock.monotonic_ms() - self._last_heartbeat_ms",
        "        elif self._clock.now_ms() - self._last_heartbeat_ms",
        (
            Edit(
                "barnabas.pipelines.service.leadership",
                "        self._last_heartbeat_ms = self._clock.monotonic_ms()\n",
                "        self._last_heartbeat_ms = self._clock.now_ms()\n",
            ),
        ),
        trial="services",
    ),
    Bug(
        "a service that stood still takes over before it reads",
        "barnabas.pipelines.service.leadership",
        "            if self._clock.monotonic_ms() - slept_at_ms > STOOD_STILL_MS:\n",
        "            if False:\n",
        trial="services",
    ),
    Bug(
        "a service whose pipelines were taken runs them on",
        "barnabas.pipelines.service.service",
        "        if change is LeadershipChange.LOST:\n",
        "        if False:\n",
        trial="services",
    ),
    Bug(
        "a claim that comes while a service opens is not seen",
        "barnabas.pipelines.service.service",
        "        if self._store.leader is not None:  # another service may have claimed meanwhile\n",
        "        if False:\n",
        trial="services",
    ),
    Bug(
        "a released claim is waited for like a dead service",
        "barnabas.pipelines.service.leadership",
        "        elif change.is_release and change.writer == self._leader_id and not self.is_leader:\n",
        "        elif False:\n",
        trial="services",
    ),
    Bug(
        "the generations of deleted pipelines are forgotten",
        "barnabas.pipelines.service.service",
        "            self._deleted_generations[name] = change.deleted_generation\n",
        "            pass\n",
        trial="services",
    ),
    Bug(
        "changes of the other services are not followed",
        "barnabas.pipelines.service.service",
        "        elif change.stored is not None:\n            self._stored[name] = change.stored\n",
        "        elif change.stored is not None and name not in self._stored:\n"
        "            self._stored[name] = change.stored\n",
        trial="services",
    ),
    # Dead letters of pipelines
    Bug(
        "a condemned record is noted before its letter is written",
        "barnabas.pipelines.spark.recovery.bisect_bad_records",
        "    if write is not None:\n        write(new)\n    note(new)\n",
        "    note(new)\n    if write is not None:\n        write(new)\n",
        trial="letters",
    ),
    Bug(
        "letters are known by how many they are",
        "barnabas.pipelines.spark.recovery.quarantine",
        'hashlib.sha256("\\n".join(sorted(found)).encode())',
        "hashlib.sha256(str(len(list(found))).encode())",
        trial="letters",
    ),
    Bug(
        "the name of a committed batch is not found",
        "pyspark_barnabas.writers.batch_names",
        "    return int(marker.removeprefix(prefix)) if marker.startswith(prefix) else -1\n",
        "    return -1\n",
        trial="letters",
    ),
    Bug(
        "a trial that reached no record counts against it",
        "barnabas.pipelines.spark.recovery.bisect_bad_records",
        "            if trial is None or not trial.is_elsewhere:\n",
        "            if True:\n",
        trial="letters",
    ),
    # Settings that change a promise
    Bug(
        "retention deletes what is not committed",
        "barnabas.storage.log.retention",
        "        if upper_offset > high_watermark or not has_to_go(segment, following):\n",
        "        if not has_to_go(segment, following):\n",
        trial="expiry",
    ),
    Bug(
        "a retention without limit deletes everything",
        "barnabas.storage.log.retention",
        "        if config.retention_ms >= 0:\n",
        "        if config.retention_ms >= -1:\n",
        trial="expiry",
    ),
    Bug(
        "a partition without an in-sync replica does not hear that unclean elections are allowed",
        "barnabas.controller.controller",
        "        if term is not None and config.unclean_leader_election_enable:\n",
        "        if term is None:\n",
        trial="concession",
    ),
    Bug(
        "any setting of unclean elections allows them",
        "barnabas.controller.state.store",
        '            if default if text is None else text.strip().lower() == "true":\n',
        "            if default if text is None else bool(text):\n",
        trial="concession",
    ),
    Bug(
        "a throttle holds nothing",
        "barnabas.replication.partition.throttle",
        "        return self._total_bytes * 1_000 > rate * elapsed_ms\n",
        "        return False\n",
        trial="held",
    ),
    Bug(
        "a throttle does not forget",
        "barnabas.replication.partition.throttle",
        "            self._total_bytes -= self._seconds.popleft()[1]\n",
        "            self._seconds.popleft()\n",
        trial="held",
    ),
    Bug(
        "a throttle holds replicas that are in sync",
        "barnabas.replication.leader.replica_reader",
        "            and params.replica_id not in partition.leadership.isr\n",
        "",
        trial="held",
    ),
)
