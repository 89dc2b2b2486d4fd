"""Trust in declarative projects: a project is Python code, which a client must not choose.

The code is never sent. A client names a project on the service's machine, and only two kinds are run:

- With `pipeline serve --projects DIR`, projects in these directories.
- Without it, any project, if the service requires its own token. Only commands of the same user on the same
  machine have that token. A service with other users, or open to all, then runs no project.

In both cases the files belong to the user of the service or to root, and no other user may write them. So a
record that another client wrote into the pipelines topic runs no code of that client either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.pipelines.spec.declarative.project import Project, read_project
from barnabas.pipelines.spec.declarative.settings import PROJECT_FILE
from barnabas.pipelines.spec.problems import InvalidSpec, Problem

OPTION: Final = "--projects"
PROJECT_BYTES_MAX: Final = 1024 * 1024
"""Of the project file: a client names it, and the service reads all of it."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """Directories in which projects may be."""

    places: tuple[Path, ...] = ()
    is_anywhere: bool = False

    def complaint(self, file: Path) -> str | None:
        """Reason why a project at this place is not read; None if it is."""
        if "\0" in str(file):
            return f"{str(file)!r} is no path"
        if self.is_anywhere:
            return _file_complaint(file)
        if any(file.resolve().is_relative_to(place.resolve()) for place in self.places):
            return _file_complaint(file)
        return f"{file} is not in a directory that {OPTION} of the service names"


def _file_complaint(file: Path) -> str | None:
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        return f"{file} is not a regular file"
    if found.st_size > PROJECT_BYTES_MAX:
        return f"{file} has {found.st_size} bytes; a project file has at most {PROJECT_BYTES_MAX}"
    return None


NOTHING_TRUSTED = Trusted()


def checked_project(file: Path, trusted: Trusted) -> Project:
    """A project that the service may run; raises InvalidSpec, UnreadableSpec or OSError."""
    complaint = trusted.complaint(file)
    if complaint is not None:
        raise InvalidSpec([Problem((PROJECT_FILE,), "config", None, complaint)])
    project = read_project(file)
    complaints = list(_owner_complaints(project))
    if complaints:
        raise InvalidSpec([Problem((), str(file), None, each) for each in complaints])
    return project


def _owner_complaints(project: Project) -> Iterator[str]:
    """Files of a project that other users could have written, and directories in which they could."""
    allowed = {0, os.geteuid()}
    files = (project.file, *project.sources)
    for each in (*files, *sorted({file.parent for file in files})):
        found = each.stat()
        if found.st_uid not in allowed:
            yield f"{each} belongs to another user than the service"
        elif found.st_mode & stat.S_IWOTH:
            yield f"{each} can be written by all users: chmod o-w"
