"""The settings of the logs and of their compaction, out of the broker's configuration."""

from __future__ import annotations

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.repository import ConfigRepository
from barnabas.storage.cleaner.log_cleaner import CleanerSettings
from barnabas.storage.log_manager import LogManager, LogManagerSettings


def log_manager_settings(config: BrokerConfig, configs: ConfigRepository) -> LogManagerSettings:
    return LogManagerSettings(
        log_directories=tuple(str(path) for path in config.log_dirs),
        recovery_threads_per_directory=config.num_recovery_threads_per_data_dir,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        flush_check_interval_ms=config.log_flush_scheduler_interval_ms,
        recovery_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        start_offset_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        high_watermark_checkpoint_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        initial_delay_ms=config.log_initial_task_delay_ms,
        cleaner=cleaner_settings(configs),
    )


def cleaner_settings(configs: ConfigRepository) -> CleanerSettings:
    """Those in force: every one of them may change while the broker runs."""
    value = configs.broker_value
    return CleanerSettings(
        is_enabled=value("log.cleaner.enable"),
        threads=value("log.cleaner.threads"),
        dedupe_buffer_bytes=value("log.cleaner.dedupe.buffer.size"),
        io_buffer_bytes=value("log.cleaner.io.buffer.size"),
        load_factor=value("log.cleaner.io.buffer.load.factor"),
        io_bytes_per_second_max=value("log.cleaner.io.max.bytes.per.second"),
        backoff_ms=value("log.cleaner.backoff.ms"),
    )


def follow_log_settings(log_manager: LogManager, configs: ConfigRepository) -> None:
    """Those of all logs that may change while the broker runs."""
    log_manager.recovery_threads_per_directory = configs.broker_value("num.recovery.threads.per.data.dir")
    log_manager.expire_producers_after(configs.broker_value("producer.id.expiration.ms"))
