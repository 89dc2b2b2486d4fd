"""The rows of a spec's own sections: everything that is not a source, transform or sink."""

from __future__ import annotations

from barnabas.pipelines.spec.options import REQUIRED, Kind, Option

TOP = (
    Option("name", Kind.TEXT, REQUIRED, "What the pipeline is called; its checkpoint and group carry this name."),
    Option("source", Kind.SECTION, REQUIRED, "Where rows come from."),
    Option("transforms", Kind.SECTION, None, "What happens to them, in order."),
    Option("sink", Kind.SECTION, REQUIRED, "Where they go."),
    Option("errors", Kind.SECTION, None, "What happens to records that cannot be read."),
    Option("trigger", Kind.SECTION, None, "A pause between micro-batches ('10 seconds'), or available_now."),
    Option("delivery", Kind.CHOICE, None, "What is wanted; else the best that the sink can do.",
           choices=("exactly-once", "at-least-once")),
    Option("engine", Kind.CHOICE, "auto", "Which connector reads topics.",
           choices=("auto", "python", "jvm", "segments")),
    Option("restart", Kind.SECTION, None, "How a failed pipeline is tried again."),
    Option("spark", Kind.SECTION, None, "Where Spark runs, and its settings."),
)  # fmt: skip

ERRORS = (
    Option("tolerance", Kind.CHOICE, "none", "Whether a bad record stops the pipeline (none) or is set aside (all).",
           choices=("none", "all"), aliases=("errors.tolerance",)),
    Option("dead_letter_topic", Kind.TEXT, None, "Where bad records go, with headers that say why.",
           aliases=("errors.deadletterqueue.topic.name",)),
    Option("max_error_ratio", Kind.NUMBER, 1.0, "A larger share of bad records in a micro-batch stops the pipeline.",
           at_least=0, at_most=1),
)  # fmt: skip

RESTART = (
    Option("max_attempts", Kind.INTEGER, 5, "Failures in a row after which the pipeline stays FAILED.", at_least=0),
    Option("backoff", Kind.DURATION, "1 second", "Pause before the first restart; it doubles."),
    Option("backoff_max", Kind.DURATION, "60 seconds", "Longest pause."),
)  # fmt: skip

SPARK = (
    Option("master", Kind.TEXT, None, "local[*], local-cluster[n,cores,MB], spark://…, yarn, k8s://…"),
    Option("conf", Kind.MAP, None, "Spark settings."),
)
