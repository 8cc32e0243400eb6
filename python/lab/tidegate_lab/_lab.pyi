"""The compiled part."""

from collections.abc import Callable
from typing import Any, final

from _typeshed import StrOrBytesPath
from typing_extensions import CapsuleType

@final
class Table:
    """A table: named columns of one length; any reader of Arrow takes it as it is."""

    @property
    def name(self) -> str: ...
    @property
    def column_names(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, column: str, /) -> list[Any]: ...
    def to_dict(self) -> dict[str, list[Any]]: ...
    def to_pandas(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> CapsuleType: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def _repr_html_(self) -> str: ...

@final
class Scenario:
    """One experiment: immutable, and checked when it is made."""

    @classmethod
    def load(cls, name: StrOrBytesPath) -> Scenario: ...
    @classmethod
    def from_toml(cls, text: str, origin: str = "<text>") -> Scenario: ...
    def with_(self, key: str | dict[str, Any], value: Any = None) -> Scenario: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def rows(self) -> list[str]: ...
    @property
    def policies(self) -> list[str]: ...
    @property
    def metrics(self) -> list[str]: ...
    @property
    def toml(self) -> str: ...
    @property
    def origin(self) -> str: ...
    def __hash__(self) -> int: ...

@final
class Run:
    """The results of the runs of a scenario."""

    @property
    def rows(self) -> Table: ...
    @property
    def timeline(self) -> Table: ...
    @property
    def waits(self) -> Table: ...
    @property
    def claims(self) -> Table: ...
    @property
    def tables(self) -> dict[str, Table]: ...
    @property
    def trace_hash(self) -> str: ...
    @property
    def trace_hashes(self) -> dict[str, str]: ...
    @property
    def failed(self) -> list[tuple[str, str]]: ...
    @property
    def is_whole(self) -> bool: ...
    @property
    def scenario(self) -> Scenario: ...
    @property
    def policies(self) -> list[str]: ...
    def save(self, folder: StrOrBytesPath) -> Any: ...
    def _repr_html_(self) -> str: ...

def devices() -> Table:
    """The device models of the lab."""

def experiments() -> Table:
    """The built-in experiments: name, title, paper."""

def kinds() -> Table:
    """The kinds of task: one row for each key of each kind."""

def metrics() -> Table:
    """The metrics: name, unit, which direction is better, what it is."""

def policies() -> Table:
    """The policies that a column may name."""

def version() -> str:
    """Version and commit, in the words of the program."""

def run_scenario(
    scenario: Scenario,
    policies: list[str],
    repetitions: int | None,
    scale: float | None,
    seed: int | None,
    tick: Callable[[int, int], None] | None,
    side_by_side: bool,
) -> Run: ...
def campaign_seeds(seeds: list[int]) -> list[tuple[int, str, str | None, str | None]]: ...
def replay_traces(
    traces: list[str],
    rules: list[str],
    pages: list[str],
    memory: list[str],
    readahead: bool,
    format: str | None,
) -> Table: ...
def compare_recording(
    recording: StrOrBytesPath,
    set: list[str],
    given: list[str],
    policies: list[str],
    against: StrOrBytesPath | None,
    seed: int,
) -> tuple[Table, Table | None, str]: ...
def reproduce_claims(
    papers: list[str],
    repetitions: int | None,
    scale: float | None,
    out: StrOrBytesPath | None,
) -> tuple[Table, Any]: ...
