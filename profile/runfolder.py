"""The run folder: atomic files, one writer at a time, and stages that are skipped when still valid.

Every file appears under its final name only when it is whole. `stages.json` keeps, for each stage
that ended, a fingerprint of all that went into it and a hash of each file it made; a stage whose
fingerprint and files are as they were is not run again, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kernelroof.models.errors import OutputError, UsageError
from kernelroof.profile.lock import LOCK, take_lock

STAGES = "stages.json"
RUN = "run.json"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it is renamed to `path` when the block ends well.

    The temporary name keeps the suffixes, since some writers choose their format by them.

    Raises:
        OutputError: the file can't be written (no permission, no space).
    """
    if path.exists() and not path.is_file():  # a device would be replaced, not written to
        raise OutputError(f"{path} can't be written (it is no ordinary file)", "Name a file that may be replaced.")
    temporary = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        yield temporary
        if not temporary.exists():  # some writers fail in silence, mostly where no space is left
            raise OSError("nothing was written")
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(
            f"{path} can't be written ({error.strerror or error})", "Free some space or choose another --out."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file under its final name only when it is whole.

    Names of files need not be text; what of them can't be encoded is written as an escape.
    """
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: Any) -> None:
    """Write JSON under its final name only when it is whole."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def check_target(target: Path) -> Path:
    """The file that --out names, a link followed; refuses folders, devices and what a run recorded.

    Raises:
        UsageError: `target` is a folder or a device, or a file that a stage of the run beside it made.
    """
    if target.is_dir():
        raise UsageError(f"--out {target} is a folder", f"Name a file in it, such as {target / 'out.html'}.")
    whole = target.resolve()
    if str(target).startswith("/dev/") or (whole.exists() and not whole.is_file()):
        raise UsageError(f"--out {target} is no ordinary file", "Name a file that may be replaced.")
    stages = whole.parent / STAGES
    try:
        found = read_json(stages) if stages.is_file() else {}
    except OutputError:
        found = {}
    made = {str(file) for name, stage in found.items() if name != "report" and isinstance(stage, dict)
            for file in stage.get("files", {})}  # fmt: skip
    if whole.exists() and whole.name in {RUN, STAGES, *made}:
        raise UsageError(f"--out {target} is a file that a run recorded", "Choose another name.")
    return whole


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a run folder.

    Raises:
        OutputError: not there, damaged, or no object.
    """
    if path.exists() and not path.is_file():  # opening a pipe would wait for ever
        raise OutputError(f"{path} is no ordinary file", "Replace the run with --overwrite.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(f"{path} can't be read ({error})", "Replace the run with --overwrite.") from error
    if not isinstance(content, dict):
        raise OutputError(f"{path} holds no JSON object", "Replace the run with --overwrite.")
    return content


def fingerprint(value: Any) -> str:
    """A short hash of anything JSON can express."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RunFolder:
    """One run's folder, locked while open.

    `identity` is what makes a run this run (model, workload, device, ...). A folder that holds what
    another run measured is refused, so that nothing recorded is lost by a repeated command.
    `files` are glob patterns of all that a run writes: what `overwrite` may remove. `measured` names the
    stages whose files can't be made again: a folder in which none of them ended blocks no other run.
    """

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, Any],
        *,
        files: Sequence[str] = (),
        measured: Sequence[str] = (),
        overwrite: bool = False,
    ) -> None:
        self.path = path
        self.identity = dict(identity)
        self._files = files
        self._measured = measured
        self._overwrite = overwrite
        self._stages: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> RunFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"the run folder {self.path} can't be made ({error.strerror})", "Choose another --out."
            ) from error
        take_lock(self.file(LOCK))
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.file(LOCK).unlink(missing_ok=True)

    def file(self, name: str) -> Path:
        """Path of a file in this folder."""
        return self.path / name

    def is_kept(self, name: str, inputs: Mapping[str, Any], outputs: Iterable[str]) -> bool:
        """Whether a stage need not run: same inputs, and its files are what it made."""
        stage = self._stages.get(name)
        if not isinstance(stage, dict) or stage.get("key") != fingerprint(inputs):
            return False
        made = stage.get("files")
        return (
            isinstance(made, dict)
            and set(outputs) <= made.keys()
            and all(_hash(self.file(file)) == digest for file, digest in made.items())
        )

    def stage(
        self, name: str, inputs: Mapping[str, Any], outputs: Sequence[str], work: Callable[[], Iterable[str] | None]
    ) -> bool:
        """Run `work` unless `is_kept`; returns whether it ran.

        `work` must write every output (with `whole_file`); it may return names of further files it made.
        """
        if self.is_kept(name, inputs, outputs):
            return False
        self._stages.pop(name, None)
        self._save()
        made = [*outputs, *(work() or ())]
        missing = [o for o in made if not self.file(o).is_file()]
        if missing:
            raise OutputError(f"stage {name} ended without {', '.join(missing)}", "Run again; report it if it stays.")
        self._stages[name] = {"key": fingerprint(inputs), "files": {o: _hash(self.file(o)) for o in made}}
        self._save()
        return True

    def key_of(self, name: str) -> str | None:
        """What a finished stage made, for the inputs of a later one: a hash of its inputs and files."""
        return fingerprint(self._stages[name]) if name in self._stages else None

    def _open(self) -> None:
        known = self._identity_found()
        measured = not self._measured or any(name in self._stages for name in self._measured)
        if known is not None and known != self.identity and measured and not self._overwrite:
            raise OutputError(
                f"{self.path} already holds another run ({_differences(known, self.identity)})",
                "Choose another --out, or replace it with --overwrite.",
            )
        if known is not None and known != self.identity:
            self._clear()
        for leftover in self.path.glob(".part-*"):
            if leftover.is_file():
                leftover.unlink()

    def _identity_found(self) -> dict[str, Any] | None:
        """Identity of the run in this folder, and its stages; None for an empty folder."""
        run, stages = self.file(RUN), self.file(STAGES)
        if not run.exists() and not stages.exists():
            if any(p.name != LOCK and not p.name.startswith(".part-") for p in self.path.iterdir()):
                raise OutputError(f"{self.path} is not empty and holds no run", "Choose another --out.")
            return None
        made = (p for pattern in self._files for p in self.path.glob(pattern))
        # Without stages to be measured (a sweep, an analysis) there never is such a file.
        lost = self._measured and not stages.exists() and not self._overwrite
        if lost and (kept := next(made, None)) is not None:
            raise OutputError(
                f"{self.path} holds {kept.name} but no {STAGES}, so nobody can tell what of it is whole",
                "Bring stages.json back, choose another --out, or record again with --overwrite.",
            )
        try:
            found = read_json(run).get("identity")
            self._stages = read_json(stages) if stages.exists() else {}
        except OutputError:
            if not self._overwrite:
                raise
            return {}
        return found if isinstance(found, dict) else {}

    def _clear(self) -> None:
        """Remove a previous run's own files; anything else in the folder stays."""
        self._stages = {}
        for pattern in (RUN, STAGES, *self._files):
            for old in self.path.glob(pattern):
                if old.is_file():
                    old.unlink()

    def _save(self) -> None:
        write_json(self.file(STAGES), self._stages)


def _hash(path: Path) -> str | None:
    """SHA-256 of a file; None if there is none."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return _digest(file)
    except OSError:
        return None


def _digest(file: IO[bytes]) -> str:
    # Python 3.10 has no hashlib.file_digest.
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    flat_found, flat_wanted = _flat(found), _flat(wanted)
    names = [k for k in flat_wanted if flat_found.get(k) != flat_wanted[k]]
    shown = [f"{k} {_brief(flat_found.get(k))} there, {_brief(flat_wanted[k])} asked" for k in names if k != "config"]
    return "; ".join(shown[:3]) or "another model config"


def _brief(value: Any) -> str:
    """A value for a message: of a list its length and first member, of a long text its beginning."""
    if isinstance(value, list) and len(value) > 1:
        return f"{len(value)} ({_brief(value[0])}, ...)"
    text = str(value[0] if isinstance(value, list) and value else value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts by their innermost names, but for a model's config."""
    out: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict) and key != "config":
            out.update(_flat(item))
        else:
            out[key] = item
    return out
