"""Bugs that are planted to see whether the fuzzer finds them: faults that it was built for, and neighbours.

Those of decoders and readers are caught by `byte_loop`, those of brokers by sequences and their judges.
"""

from __future__ import annotations

from tests.support.planting import Bug, Edit

DECODERS = (
    Bug(
        "a length may reach beyond the frame",
        "barnabas.protocol.schema.decoding",
        'source.line("if not position <= end <= limit:")',
        'source.line("if end < position:")',
    ),
    Bug(
        "text that is not UTF-8 is an error of ours",
        "barnabas.protocol.schema.decoding",
        'source.line("except UnicodeDecodeError as error:")',
        'source.line("except ZeroDivisionError as error:")',
    ),
    Bug(
        "a message that is cut short is an error of ours",
        "barnabas.protocol.schema.decoding",
        'source.line("except (IndexError, StructError) as error:")',
        'source.line("except IndexError as error:")',
    ),
    Bug(
        "null may stand where it may not",
        "barnabas.protocol.schema.decoding",
        """f'{target} = None' if nullable else f'reject_null({what!r})'""",
        """f'{target} = None'""",
    ),
    Bug(
        "a flexible header may end early",
        "barnabas.protocol.schema.headers",
        "            position = primitives.skip_tagged_fields(frame, position)"
        " if frame[position] else position + 1\n        except IndexError:",
        "            position = primitives.skip_tagged_fields(frame, position)"
        " if frame[position] else position + 1\n        except ZeroDivisionError:",
    ),
    Bug(
        "a header without room for a client id is an error of ours",
        "barnabas.protocol.schema.headers",
        "    except struct.error:\n"
        '        raise MalformedMessage("the request header is truncated") from None\n    if api_key',
        "    except ZeroDivisionError:\n"
        '        raise MalformedMessage("the request header is truncated") from None\n    if api_key',
    ),
    Bug(
        "a tagged field may reach beyond the frame",
        "barnabas.protocol.schema.primitives",
        "        if position > limit:\n",
        "        if position < 0:\n",
    ),
    Bug(
        "a produced record that is cut short is an error of ours",
        "barnabas.records.inspection",
        "    except IndexError:\n"
        '        raise InvalidRecord("A varint runs past the end of its buffer") from None',
        "    except ZeroDivisionError:\n"
        '        raise InvalidRecord("A varint runs past the end of its buffer") from None',
    ),
    Bug(
        "an old message that is cut short is an error of ours",
        "barnabas.records.legacy",
        '        except struct.error:\n            raise CorruptMessage("A message is truncated")',
        '        except ZeroDivisionError:\n            raise CorruptMessage("A message is truncated")',
    ),
    Bug(
        "a subscription without a version is an error of ours",
        "barnabas.coordinator.group.state.embedded_protocol",
        "    if len(metadata) < _VERSION.size:\n",
        "    if len(metadata) < 0:\n",
    ),
    Bug(
        "a frame of nothing in the journal is an error of ours",
        "barnabas.cluster.embedded.journal_codec",
        "    if length == 0 or len(payload)",
        "    if len(payload)",
    ),
    Bug(
        "a znode with a list where an object belongs is an error of ours",
        "barnabas.cluster.znodes.json_codec",
        "STUMBLES: Final = (KeyError, TypeError, ValueError, AttributeError,",
        "STUMBLES: Final = (KeyError, ValueError,",
    ),
    Bug(
        "a checkpoint with a word where a number belongs is an error of ours",
        "barnabas.storage.files.checkpoints",
        "        except ValueError:\n            raise CorruptCheckpoint(f",
        "        except KeyError:\n            raise CorruptCheckpoint(f",
    ),
    Bug(
        "a checkpoint without a version is an error of ours",
        "barnabas.storage.files.checkpoints",
        '    except ValueError:\n        raise CorruptCheckpoint("the first',
        '    except KeyError:\n        raise CorruptCheckpoint("the first',
    ),
    Bug(
        "a producer snapshot that ends early is an error of ours",
        "barnabas.storage.producers.producer_snapshot",
        "    except (struct.error, IndexError):\n",
        "    except IndexError:\n",
    ),
    Bug(
        "half an entry of a transaction index is an error of ours",
        "barnabas.storage.segment.transaction_index",
        "    if len(content) % ENTRY.size:\n",
        "    if not ENTRY.size:\n",
    ),
    Bug(
        "a head without its end is an error of ours",
        "barnabas.network.http.messages",
        "        if not isinstance(request, Request) or request.http_version",
        "        if request.http_version",
    ),
    Bug(
        "a chunk that h11 refuses is an error of ours",
        "barnabas.network.http.messages",
        "        except RemoteProtocolError as error:\n",
        "        except EOFError as error:\n",
    ),
    Bug(
        "a login configuration that ends early is an error of ours",
        "barnabas.security.sasl.jaas",
        "    if token is None or token.is_mark:\n        raise InvalidConfig(",
        "    if token is not None and token.is_mark:\n        raise InvalidConfig(",
    ),
    Bug(
        "a credential without a salt is an error of ours",
        "barnabas.security.credentials.scram_credential",
        "        except (KeyError, ValueError, binascii.Error):\n",
        "        except (ValueError, binascii.Error):\n",
    ),
    Bug(
        "a name for PLAIN that is not UTF-8 is an error of ours",
        "barnabas.security.sasl.plain",
        "        except UnicodeDecodeError:\n",
        "        except ZeroDivisionError:\n",
    ),
    Bug(
        "a rule for Kerberos names may be no pattern",
        "barnabas.security.sasl.kerberos_names",
        "    except re.error as error:\n",
        "    except ZeroDivisionError as error:\n",
    ),
    Bug(
        "a listener may be anything",
        "barnabas.config.listeners",
        "    match = _LISTENER.fullmatch(entry)\n    if match is None:\n",
        "    match = _LISTENER.fullmatch(entry)\n    if not entry:\n",
    ),
    Bug(
        "a document of a character that YAML forbids is an error of ours",
        "barnabas.pipelines.spec.yaml_source",
        "    loader: yaml.SafeLoader | None = None\n    try:\n        loader = yaml.SafeLoader(text)\n",
        "    loader: yaml.SafeLoader | None = yaml.SafeLoader(text)\n"
        "    try:\n        assert loader is not None\n",
    ),
    Bug(
        "an alias that contains itself is an error of ours",
        "barnabas.pipelines.spec.yaml_source",
        "    except RecursionError:\n",
        "    except ZeroDivisionError:\n",
    ),
    Bug(
        "SQL that cannot be parsed is an error of ours",
        "barnabas.pipelines.spec.sql.columns",
        "    except (SqlglotError, RecursionError):\n",
        "    except RecursionError:\n",
    ),
    Bug(
        "SQL of a client may call Java in another spelling",
        "barnabas.pipelines.spec.sql_calls",
        "            if name in JAVA_CALLS:\n",
        "            if token.text in JAVA_CALLS:\n",
    ),
    Bug(
        "SQL of a client may read files",
        "barnabas.pipelines.spec.sql_calls",
        '        if "/" in last.text or (before is not None and before.kind in _BEFORE_TABLES):\n',
        '        if "/" in last.text and before is not None and before.kind in _BEFORE_TABLES:\n',
    ),
    Bug(
        "SCRAM tells which users there are",
        "barnabas.security.credentials.decoys",
        "            return next(iter(shapes), Shape())\n",
        "            return Shape()\n",
    ),
)
"""Caught by bytes."""

BROKERS = (
    Bug(
        "an answer of an old version names the requester of a token",
        "barnabas.protocol.messages.create_delegation_token",
        '    token_requester_principal_type: str = string("3+", ignorable=True)',
        '    token_requester_principal_type: str = string("3+")',
    ),
    Bug(
        "groups are described without a right",
        "barnabas.handlers.describe_groups",
        "        if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):\n",
        "        if not group_id:\n",
    ),
    Bug(
        "topics are shown without a right",
        "barnabas.handlers.metadata",
        "        if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):\n",
        "        if not name:\n",
    ),
    Bug(
        "offsets are listed without a right",
        "barnabas.handlers.list_offsets",
        "        context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)\n",
        "",
    ),
    Bug(
        "SIGTERM is received and ignored",
        "barnabas.node.stop_signals",
        "        self._watchdog.end_after(SHUTDOWN_BEGUN_MS_MAX)\n"
        "        self._loop.call_soon_threadsafe(self._stop, signal.Signals(signum))\n",
        "",
    ),
    Bug(
        "an offset that was removed returns in a restart",
        "barnabas.coordinator.group.offsets.records",
        "                    partitions.pop(partition, None)\n",
        "                    pass\n",
    ),
    Bug(
        "a handler fails for a partition that is negative",
        "barnabas.handlers.list_offsets",
        "        context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)\n",
        "        context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)\n"
        "        [0][0 if context.api_version else 1]\n",
    ),
)
"""Caught by requests in sequences."""

SIMULATED = (
    Bug(
        "a negative rebalance timeout of a static member makes a timer that is always due",
        "barnabas.coordinator.group.state.classic_member",
        "    return request.session_timeout_ms if given_ms == NOT_GIVEN else max(given_ms, 0)\n",
        "    return request.session_timeout_ms if given_ms == NOT_GIVEN else given_ms\n",
        (
            Edit(
                "barnabas.coordinator.group.classic.rebalance",
                "        delay_ms = max(group.rebalance_timeout_ms, delay_ms_min)\n",
                "        delay_ms = group.rebalance_timeout_ms\n",
            ),
            Edit(
                "barnabas.purgatory.timer",
                "        due, self._due = self._due, self._due_next\n",
                "        due = self._due\n",
            ),
            Edit(
                "barnabas.purgatory.timer",
                "                if self._monotonic_ms() - began_ms > TURN_MS_MAX:\n"
                "                    break\n",
                "",
            ),
        ),
    ),
)
"""Caught by requests in sequences in the simulator, where sessions end within a sequence."""

LARGE = (
    Bug(
        "names of a request are checked in one turn of the loop",
        "barnabas.requests.time_slicing",
        "advance_until(queued.work, now_ms, at_ms + TURN_MS_MAX)",
        "advance_until(queued.work, now_ms, at_ms + REQUEST_LOOP_MS_MAX)",
    ),
    Bug(
        "a fetch session keeps partitions before rights are checked, and as many as are named",
        "barnabas.replication.leader.fetch_session_cache",
        "            if epoch == FINAL_EPOCH or not may_keep:\n",
        "            if epoch == FINAL_EPOCH:\n",
        (
            Edit(
                "barnabas.replication.leader.fetch_session_cache",
                "SESSION_LIMITS = MemoryLimits(\n"
                "    FETCH_SESSION_CONNECTION_BYTES_MAX, FETCH_SESSION_PRINCIPAL_BYTES_MAX,"
                " FETCH_SESSION_BROKER_BYTES_MAX\n)\n",
                "SESSION_LIMITS = MemoryLimits(1 << 40, 1 << 40, 1 << 40)\n",
            ),
            Edit(
                "barnabas.replication.leader.fetch_session_cache",
                "                owner.when_closed(partial(self._close_of, owner))\n",
                "",
            ),
        ),
    ),
    Bug(
        "a planted batch may have any number of records, and is walked in one turn",
        "barnabas.records.validation",
        "INSPECTED_RECORDS_MAX: Final = 100_000\n",
        "INSPECTED_RECORDS_MAX: Final = 1 << 31\n",
        (
            Edit(
                "barnabas.requests.time_slicing",
                "advance_until(queued.work, now_ms, at_ms + TURN_MS_MAX)",
                "advance_until(queued.work, now_ms, at_ms + REQUEST_LOOP_MS_MAX)",
            ),
        ),
    ),
    Bug(
        "a pattern may cost anything",
        "barnabas.coordinator.group.consumer.regex",
        "        if self._left_ms < 0:\n",
        "        if self._left_ms < -1e12:\n",
    ),
    Bug(
        "a client id that is no text grows while it is read",
        "barnabas.protocol.schema.headers",
        '    return str(text.encode()[:STRING_BYTES_MAX], "utf-8", "ignore")\n',
        "    return text\n",
        (
            Edit(
                "barnabas.coordinator.group.state.client_info",
                '        label = (client_id or "")[:NAME_CHARS_REMEMBERED_MAX]\n',
                '        label = client_id or ""\n',
            ),
        ),
    ),
    Bug(
        "log lines of strangers have no limit",
        "barnabas.core.reporting.rate_limited_log",
        "        if window.lines >= self._lines_per_second:\n",
        "        if window.lines < 0:\n",
    ),
    Bug(
        "denials in the audit log have no limit",
        "barnabas.security.acl.audit",
        "        left_out = self._windows[level].enter(self._clock.monotonic_ms(), self._lines_per_second)\n",
        "        left_out = self._windows[level].enter(self._clock.monotonic_ms(), 1 << 30)\n",
    ),
    Bug(
        "a group is answered as often as it is named",
        "barnabas.handlers.offset_fetch",
        "        groups = yield from distinct(request.groups, _identity)\n",
        "        groups = request.groups\n",
    ),
)
"""Caught by large requests."""

SCRIPTS = (
    Bug(
        "a member id that is given out costs nothing",
        "barnabas.coordinator.group.state.group_memory",
        "PENDING_BYTES = 1_500\n",
        "PENDING_BYTES = 0\n",
    ),
    Bug(
        "a member joins with any metadata",
        "barnabas.coordinator.group.state.group_memory",
        "        if metadata_bytes > JOIN_METADATA_BYTES_MAX:\n",
        "        if metadata_bytes < 0:\n",
    ),
    Bug(
        "a protocol that is named twice counts twice",
        "barnabas.coordinator.group.state.classic_member",
        "    return tuple(found.items())\n",
        "    return tuple((each.name, each.metadata) for each in protocols)\n",
        (
            Edit(
                "barnabas.coordinator.group.state.classic_group",
                "        self._supporters.update({name for name, _ in member.protocols})\n",
                "        self._supporters.update([name for name, _ in member.protocols])\n",
            ),
        ),
    ),
    Bug(
        "a fetch session is found by everybody who guesses its id",
        "barnabas.replication.leader.fetch_session_cache",
        "        return session if session is not None and session.owner is owner else None\n",
        "        return session\n",
    ),
    Bug(
        "a user may have any number of delegation tokens",
        "barnabas.cluster.stores.delegation_tokens",
        " or of_owner >= DELEGATION_TOKENS_PER_OWNER_MAX or of_owner > left\n",
        "\n",
    ),
    Bug(
        "a compressed batch may claim any number of records",
        "barnabas.records.validation",
        "        _count_records(batch)\n",
        "        pass\n",
    ),
    Bug(
        "a batch is inflated and compressed again on the loop",
        "barnabas.records.validation",
        "    if count > INSPECTED_INLINE_RECORDS_MAX:\n        return True\n",
        "    if count > 0:\n        return False\n",
    ),
    Bug(
        "all records of a batch are converted for an old consumer in one turn",
        "barnabas.handlers.shared.down_conversion",
        "CONVERTED_BYTES_MAX = 1024 * 1024\n",
        "CONVERTED_BYTES_MAX = 1 << 30\n",
        (
            Edit(
                "barnabas.requests.time_slicing",
                "advance_until(queued.work, now_ms, at_ms + TURN_MS_MAX)",
                "advance_until(queued.work, now_ms, at_ms + REQUEST_LOOP_MS_MAX)",
            ),
        ),
    ),
    Bug(
        "a pattern may have any number of Unicode classes",
        "barnabas.coordinator.group.consumer.regex",
        "UNICODE_CLASSES_MAX: Final = 32\n",
        "UNICODE_CLASSES_MAX: Final = 1 << 30\n",
    ),
    Bug(
        "reading a malformed request is not charged to a quota",
        "barnabas.requests.dispatcher",
        "connection.principal.name, client_id, spent_ms)\n        if not throttle_ms:\n",
        "connection.principal.name, client_id, 0.0)\n        if not throttle_ms:\n",
    ),
    Bug(
        "queued.max.request.bytes bounds nothing",
        "barnabas.network.request_memory",
        "        return self._bytes_max == NO_BOUND or self.used_bytes < self._bytes_max\n",
        "        return True\n",
    ),
    Bug(
        "metadata that cannot be read keeps others from leaving a group",
        "barnabas.coordinator.group.migration.conversion",
        "    except MalformedMessage:\n        return 0\n",
        "    except ZeroDivisionError:\n        return 0\n",
    ),
    Bug(
        "a transactional id is enough to write into another user's open transaction",
        "barnabas.handlers.produce",
        "    if write.is_ongoing and not proven.knows(",
        "    if not write.is_ongoing and not proven.knows(",
    ),
    Bug(
        "an assignor moves one partition at a time, and assigns all of them in one turn",
        "barnabas.coordinator.group.consumer.assignment_runs",
        "            job.ended = advance_until(job.work, monotonic_ms, monotonic_ms() + TURN_MS_MAX)\n",
        "            job.ended = advance_until(job.work, monotonic_ms, monotonic_ms() + 1e9)\n",
        (
            Edit(
                "barnabas.coordinator.group.consumer.assignors",
                "        moves += 1\n        if not moves % STEPS_PER_PAUSE:\n            yield\n",
                "        moves += 1\n        break\n",
            ),
        ),
    ),
    Bug(
        "all groups are listed in one turn",
        "barnabas.handlers.list_groups",
        "        groups = []\n"
        "        for part in parts:\n"
        "            for group in part:\n"
        "                yield\n",
        "        groups = []\n        yield\n        for part in parts:\n            for group in part:\n",
    ),
    Bug(
        "the metrics page is rendered in one turn",
        "barnabas.node.metrics_endpoint",
        "            if monotonic_ms() > turn_ends_ms:\n",
        "            if monotonic_ms() < 0:\n",
    ),
)
"""Caught by scripts of known faults."""

BUGS = (*DECODERS, *BROKERS, *LARGE, *SCRIPTS, *SIMULATED)
