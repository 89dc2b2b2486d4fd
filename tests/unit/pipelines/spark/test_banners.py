"""Banners of a JVM do not reach the terminal; everything else does, in its order."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from barnabas.pipelines.spark.jvm.banners import BANNERS, without_banners

CHILD = """
import os, sys
os.write(3, b"WARNING: Using incubator modules: jdk.incubator.vector\\n")
os.write(3, b"an error\\n")
sys.stdin.read()
os.write(3, b"a later error\\n")
"""


def filtering() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "banners of the JVM"]


def test_only_the_banner_is_left_out_also_after_the_start(tmp_path: Path) -> None:
    file = tmp_path / "stderr"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        with without_banners(descriptor):
            os.write(descriptor, b"ours\n")
            command = [sys.executable, "-c", CHILD.replace("(3,", f"({descriptor},")]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(descriptor,))
        os.write(descriptor, b"")
        child.communicate()
        for thread in filtering():
            thread.join()
        os.write(descriptor, b"ours again\n")
    finally:
        os.close(descriptor)
    text = file.read_bytes()
    assert text.splitlines() == [b"ours", b"an error", b"a later error", b"ours again"]
    assert BANNERS[0] not in text


def test_sparks_gateway_has_the_level_of_the_root() -> None:
    """Spark announces any other level in two lines."""
    from barnabas.pipelines.spark.jvm.session import QUIET

    lines = QUIET.read_text(encoding="utf-8").splitlines()
    assert "rootLogger.level = fatal" in lines
    assert "logger.gateway.level = fatal" in lines
