"""The run folder: atomic files, one writer at a time, and stages that are skipped when still valid.

Every file appears under its final name only when it is whole. `stages.json` keeps, for each stage
that ended, a fingerprint of all that went into it; a stage whose fingerprint and outputs are still
there is not run again, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelroof.models.errors import OutputError

LOCK = "run.lock"
STAGES = "stages.json"
RUN = "run.json"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it is renamed to `path` when the block ends well.

    The temporary name keeps the suffixes, since some writers choose their format by them.

    Raises:
        OutputError: the file can't be written (no permission, no space).
    """
    temporary = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(
            f"{path} can't be written ({error.strerror or error})", "Free some space or choose another --out."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file under its final name only when it is whole."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON under its final name only when it is whole."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file of a run folder.

    Raises:
        OutputError: not there or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} can't be read ({error})", "Delete it and run again.") from error


def fingerprint(value: Any) -> str:
    """A short hash of anything JSON can express."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RunFolder:
    """One run's folder, locked while open.

    `identity` is what makes a run this run (model, workload, device, ...). A folder that holds a
    run of another identity is refused, so that nothing recorded is lost by a repeated command.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.path = path
        self.identity = dict(identity)
        self._overwrite = overwrite
        self._stages: dict[str, str] = {}

    def __enter__(self) -> RunFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"the run folder {self.path} can't be made ({error.strerror})", "Choose another --out."
            ) from error
        self._lock()
        try:
            self._open()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._unlock()

    def file(self, name: str) -> Path:
        """Path of a file in this folder."""
        return self.path / name

    def stage(self, name: str, inputs: Mapping[str, Any], outputs: Iterable[str], work: Callable[[], None]) -> bool:
        """Run `work` unless its outputs are there and were made from the same `inputs`.

        Returns whether it ran. `work` must write every output (with `whole_file`).
        """
        key = fingerprint(inputs)
        if self._stages.get(name) == key and all(self.file(o).exists() for o in outputs):
            return False
        self._stages.pop(name, None)
        self._save()
        work()
        missing = [o for o in outputs if not self.file(o).exists()]
        if missing:
            raise OutputError(f"stage {name} ended without {', '.join(missing)}", "Run again; report it if it stays.")
        self._stages[name] = key
        self._save()
        return True

    def key_of(self, name: str) -> str | None:
        """Fingerprint of a finished stage, for the inputs of a later one."""
        return self._stages.get(name)

    def _open(self) -> None:
        run = self.file(RUN)
        if run.exists():
            found = read_json(run).get("identity")
            if found != self.identity:
                if not self._overwrite:
                    differs = _differences(found, self.identity)
                    raise OutputError(
                        f"{self.path} already holds another run ({differs})",
                        "Choose another --out, or replace it with --overwrite.",
                    )
                self._clear()
        elif any(p.name != LOCK and not p.name.startswith(".part-") for p in self.path.iterdir()):
            raise OutputError(f"{self.path} is not empty and holds no run", "Choose another --out.")
        for leftover in self.path.glob(".part-*"):
            leftover.unlink(missing_ok=True)
        stages = self.file(STAGES)
        self._stages = read_json(stages) if stages.exists() else {}

    def _clear(self) -> None:
        """Remove a previous run's own files; anything else in the folder stays."""
        for name in (RUN, STAGES):
            self.file(name).unlink(missing_ok=True)
        recorded = ("*.nsys-rep", "*.sqlite", "*.ncu-rep", "*.log", "*.out.txt")
        for pattern in ("*.png", "*.csv", "*.json", "*.json.gz", "kernels/*.png", *recorded):
            for old in self.path.glob(pattern):
                old.unlink()

    def _save(self) -> None:
        write_json(self.file(STAGES), self._stages)

    def _lock(self) -> None:
        lock = self.file(LOCK)
        for _ in range(2):
            try:
                with open(lock, "x", encoding="utf-8") as file:
                    json.dump({"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z")}, file)
                return
            except FileExistsError:
                owner = _owner(lock)
                if owner is not None and _alive(owner):
                    raise OutputError(
                        f"{self.path} is in use by process {owner}", "Wait for it, or choose another --out."
                    ) from None
                lock.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(
                    f"the run folder {self.path} can't be written ({error.strerror})", "Choose another --out."
                ) from error
        raise OutputError(f"{lock} can't be taken", "Another run keeps taking it; choose another --out.")

    def _unlock(self) -> None:
        self.file(LOCK).unlink(missing_ok=True)


def _owner(lock: Path) -> int | None:
    try:
        return int(json.loads(lock.read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _differences(found: Any, wanted: Mapping[str, Any]) -> str:
    if not isinstance(found, dict):
        return "its set-up is unknown"
    names = [k for k in wanted if found.get(k) != wanted[k]] or [k for k in found if k not in wanted]
    shown = [f"{k} {found.get(k)} there, {wanted.get(k)} asked" for k in names if not isinstance(wanted.get(k), dict)]
    return "; ".join(shown[:3]) or f"another {', '.join(names[:3])}"
