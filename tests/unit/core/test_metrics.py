import pytest

from barnabas.core.reporting.metrics import COLLECTED_CHARACTERS_MAX, Metrics, render_prometheus


def test_every_kind_is_rendered_in_the_prometheus_format() -> None:
    metrics = Metrics()
    metrics.counter("hits_total", "Hits.", topic='a"b').value += 3
    metrics.gauge("level", "Level.", lambda: 2.5)
    histogram = metrics.histogram("took_ms", "Time.", api="Produce")
    for value in (0.07, 0.07, 3.0, 99_999.0):
        histogram.observe(value)
    text = render_prometheus(metrics)
    assert '# TYPE hits_total counter\nhits_total{topic="a\\"b"} 3\n' in text
    assert "level 2.5\n" in text
    assert 'took_ms_bucket{api="Produce",le="0.1"} 2\n' in text
    assert 'took_ms_bucket{api="Produce",le="5"} 3\n' in text
    assert 'took_ms_bucket{api="Produce",le="+Inf"} 4\n' in text
    assert 'took_ms_count{api="Produce"} 4\n' in text


def test_the_same_name_and_labels_are_the_same_metric() -> None:
    metrics = Metrics()
    assert metrics.counter("a_total", "", x="1") is metrics.counter("a_total", "", x="1")
    assert metrics.counter("a_total", "", x="1") is not metrics.counter("a_total", "", x="2")


def test_a_forgotten_topic_leaves_nothing_behind() -> None:
    metrics = Metrics()
    metrics.counter("in_total", "", topic="gone").value += 1
    metrics.counter("in_total", "", topic="kept").value += 1
    metrics.forget(topic="gone")
    assert "gone" not in render_prometheus(metrics)
    assert "kept" in render_prometheus(metrics)


def test_a_name_tells_whether_it_counts() -> None:
    metrics = Metrics()
    with pytest.raises(AssertionError, match="another kind"):
        metrics.gauge("hits_total", "", lambda: 1.0)
    with pytest.raises(AssertionError, match="another kind"):
        metrics.counter("hits", "")


def test_series_beyond_the_limit_are_left_out_and_counted() -> None:
    metrics = Metrics()
    metrics.series_max = lambda: 2
    for topic in ("b", "c", "a"):
        metrics.counter("in_total", "", topic=topic).value += 1
    metrics.samples(
        "size", "", ("topic",), lambda: iter([((("topic", str(n)),), float(n)) for n in range(5)])
    )
    text = render_prometheus(metrics)
    assert [line for line in text.splitlines() if line.startswith("in_total")] == [
        'in_total{topic="b"} 1',
        'in_total{topic="c"} 1',
    ], "the series that existed first stay"
    assert [line for line in text.splitlines() if line.startswith("size")] == [
        'size{topic="0"} 0',
        'size{topic="1"} 1',
    ]
    assert 'barnabas_metrics_dropped_series{metric="in_total"} 1\n' in text
    assert 'barnabas_metrics_dropped_series{metric="size"} 3\n' in text


def test_labels_of_clients_do_not_fill_the_page() -> None:
    metrics = Metrics()
    label = "x" * (1 << 20)
    metrics.samples("reported", "", ("who",), lambda: iter([((("who", label),), 1.0)] * 100))
    text = render_prometheus(metrics)
    assert len(text) < COLLECTED_CHARACTERS_MAX + 2 * len(label)
    shown = text.count("reported{")
    assert 0 < shown < 100
    assert f'barnabas_metrics_dropped_series{{metric="reported"}} {100 - shown}\n' in text


def test_nothing_is_dropped_within_the_limit() -> None:
    metrics = Metrics()
    metrics.series_max = lambda: 1
    metrics.counter("in_total", "", topic="a")
    assert "barnabas_metrics_dropped_series{" not in render_prometheus(metrics)
