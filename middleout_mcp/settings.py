"""Settings: the only reader of the environment and of the TOML file (DESIGN §4).

An environment variable `MIDDLEOUT_NAME` wins over `name` in `config.toml`, which wins over the default.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import platformdirs
from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

APP_NAME = "middleout-mcp"
JOBS = ("expiry", "backfill", "compression", "checkpoint")
NAMESPACE = re.compile(r"[\w.@:-]{1,100}")


def config_file() -> Path:
    """Where `config.toml` is looked for: `MIDDLEOUT_HOME`, else the user's config folder."""
    home = os.environ.get("MIDDLEOUT_HOME")
    return (Path(home).expanduser() if home else platformdirs.user_config_path(APP_NAME)) / "config.toml"


def variables(names: Iterable[str]) -> dict[str, str]:
    """Those of the named environment variables that are set to something, such as the ones other programs read."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


class Settings(BaseSettings):
    """Everything a user may set. Descriptions here are the README's settings table."""

    model_config = SettingsConfigDict(
        env_prefix="MIDDLEOUT_",
        env_ignore_empty=True,  # what a client passes on where its own variable is not set
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    home: Path | None = Field(default=None, description="Folder of config.toml and of the memory file.")
    namespace: str = Field(default="default", description="The isolation boundary that is written, and read.")
    read_namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Further namespaces that may be read, never written; separated by commas."
    )
    project: str | None = Field(
        default=None, description='The scope that "this project" means; `--project` sets it, and a namespace.'
    )
    agent: str | None = Field(default=None, description="Who calls; default: the client's own name.")
    timezone: str = Field(
        default="UTC", description="How times without an offset, and words such as yesterday, are read."
    )
    embedder: str = Field(
        default="minilm-int8",
        description="`minilm-int8` (bundled), `none` (text search only), a local model folder, or a fastembed name.",
    )
    embedder_idle_minutes: float = Field(
        default=30, gt=0, description="Minutes without use after which the model leaves memory."
    )
    synchronous: Literal["full", "normal"] = Field(
        default="full",
        description="`full`, or `normal`: faster, but a power cut may lose the last writes (a crash never does).",
    )
    max_text_bytes: int = Field(
        default=2_000_000, ge=1_000, description="Longest accepted text in UTF-8 bytes; longer is refused, never cut."
    )
    secrets: Literal["redact", "refuse"] = Field(
        default="redact",
        description="What happens to a memory that holds a known secret: `redact` removes it, `refuse` the memory too.",
    )
    sensitive_recall: bool = Field(
        default=False, description="Whether recall with a `purpose` may return memories marked `sensitive`."
    )
    active_sessions: int = Field(default=5, ge=0, description="How many newest sessions compression leaves alone.")
    jobs_off: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Jobs that never run, by commas: `expiry`, `backfill`, `compression`, `checkpoint`, or `all`. "
        "Off is off: nothing of the kind happens by itself, not even right after a call.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="WARNING", description="What goes to stderr: `DEBUG`, `INFO`, `WARNING` or `ERROR`."
    )

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        if not NAMESPACE.fullmatch(value):
            raise ValueError("a namespace has 1 to 100 letters, digits and . _ @ : -")
        return value

    @field_validator("read_namespaces", "jobs_off", mode="before")
    @classmethod
    def _comma_list(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("read_namespaces")
    @classmethod
    def _read_namespaces(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cls._namespace(value) for value in values)

    @field_validator("jobs_off")
    @classmethod
    def _jobs_off(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if value not in (*JOBS, "all"):
                raise ValueError(f"{value!r} is no job; the jobs are {', '.join(JOBS)}, or all of them: all")
        return values

    def is_off(self, job: str) -> bool:
        """Whether the job of that name never runs."""
        return job in self.jobs_off or "all" in self.jobs_off

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"{value!r} is no time zone; use a name such as Europe/Berlin") from None
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the TOML file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_file())

    @property
    def data_folder(self) -> Path:
        """Where `memory.db` and its companions lie."""
        return self.home.expanduser().absolute() if self.home else platformdirs.user_data_path(APP_NAME)

    @property
    def file(self) -> Path:
        """The one file of the store."""
        return self.data_folder / "memory.db"
