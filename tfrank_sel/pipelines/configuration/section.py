"""Base of the sections of a configuration."""

from pydantic import BaseModel, ConfigDict

from tfrank_sel.pipelines.configuration.errors import choices


class Section(BaseModel):
    """Base of all sections: strict types, and no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True
    )


def keys(section: type[BaseModel]) -> list[str]:
    """Returns the keys of a section, as in files."""
    return [field.alias or name for name, field in section.model_fields.items()]


def no_key(name: str, section: type[BaseModel]) -> str:
    """Returns the error text for an unknown key, with the known keys, nearest first."""
    return f"has no such key. Accepted: {choices(name, keys(section))}"
