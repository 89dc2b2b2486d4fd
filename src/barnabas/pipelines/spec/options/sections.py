"""Options of a spec's sections other than source, transforms and sink."""

from __future__ import annotations

from barnabas.pipelines.spec.options.option import REQUIRED, Kind, Option

TOP = (
    Option("name", Kind.TEXT, REQUIRED, "Name of the pipeline, its checkpoint and its group."),
    Option("source", Kind.SECTION, REQUIRED, "Source of the rows."),
    Option("transforms", Kind.SECTION, None, "Changes to the rows, in order."),
    Option("sink", Kind.SECTION, REQUIRED, "Destination of the rows."),
    Option("errors", Kind.SECTION, None, "Handling of records that cannot be decoded or written."),
    Option("trigger", Kind.SECTION, None, "Interval between micro-batches ('10 seconds'), or available_now."),
    Option("delivery", Kind.CHOICE, None, "Delivery guarantee. Default: the strongest that the sink supports.",
           choices=("exactly-once", "at-least-once")),
    Option("engine", Kind.CHOICE, "auto", "Connector that reads topics.",
           choices=("auto", "python", "jvm", "segments")),
    Option("restart", Kind.SECTION, None, "Restarts of a failed pipeline."),
    Option("spark", Kind.SECTION, None, "Spark's master and settings."),
)  # fmt: skip

ERRORS = (
    Option("tolerance", Kind.CHOICE, "none", "Whether a bad record stops the pipeline (none) or is set aside (all).",
           choices=("none", "all"), aliases=("errors.tolerance",)),
    Option("dead_letter_topic", Kind.TEXT, None, "Topic for bad records, with the reason in their headers.",
           aliases=("errors.deadletterqueue.topic.name",)),
    Option("max_error_ratio", Kind.NUMBER, 1.0, "A larger share of bad records in a micro-batch stops the pipeline.",
           at_least=0, at_most=1),
)  # fmt: skip

RESTART = (
    Option("max_attempts", Kind.INTEGER, 5, "Failures in a row after which the pipeline stays FAILED.", at_least=0),
    Option("backoff", Kind.DURATION, "1 second", "Pause before the first restart. It doubles with each failure."),
    Option("backoff_max", Kind.DURATION, "60 seconds", "Longest pause."),
)  # fmt: skip

SPARK = (
    Option(
        "master",
        Kind.TEXT,
        None,
        "Spark master: local[*], local-cluster[n,cores,MB], spark://…, yarn, k8s://…",
    ),
    Option("conf", Kind.MAP, None, "Spark settings."),
)
