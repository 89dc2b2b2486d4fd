"""Atomic creation of an entry in Spark's log of a directory.

Several drivers may add entries to one log at the same time. Spark checks whether a name is free and then
renames its file to it. On a local disk the rename replaces an entry that another driver made in between. This
module takes the name in one step or not at all. On a local disk it uses a hard link, elsewhere a rename
without overwriting, which is atomic on HDFS. Object stores have neither: there a path must have one writer.
"""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Errors of file systems without hard links."""
TAKEN: Final = "org.apache.hadoop.fs.FileAlreadyExistsException"


def create_entry(spark: SparkSession, files: Any, path: Any, text: str) -> bool:
    """Create the file `path` in Hadoop's file system `files`; False if it exists already."""
    if str(files.getUri().getScheme()) == "file":
        return link_entry(Path(str(path.toUri().getPath())), text)
    return rename_entry(spark, files, path, text)


def link_entry(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    _write(partial, text)
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            _write(path, text)
        except FileExistsError:
            return False
    finally:
        partial.unlink()
    _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    return True


def rename_entry(spark: SparkSession, files: Any, path: Any, text: str) -> bool:
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    hadoop = jvm.org.apache.hadoop.fs
    partial = hadoop.Path(path.getParent(), f".{path.getName()}.{uuid.uuid4().hex}.tmp")
    stream = files.create(partial, False)
    try:
        stream.write(text.encode())
    finally:
        stream.close()
    context = hadoop.FileContext.getFileContext(files.getUri(), spark.sparkContext._jsc.hadoopConfiguration())
    try:
        context.rename(partial, path, gateway.new_array(hadoop.Options.Rename, 0))
    except Py4JJavaError as error:
        files.delete(partial, False)
        if str(error.java_exception.getClass().getName()) == TAKEN:
            return False
        raise
    return True


def _write(path: Path, text: str) -> None:
    with path.open("xb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
