"""What a verb needs beyond the client: an extra of the package, of which parts may be missing."""

from __future__ import annotations

from importlib.util import find_spec

from tidegate.app.cli.errors import ConfigurationInvalid

# The modules that each extra brings. A test compares them with the project file.
SERVER = (
    *(
        "anyio",
        "fastapi",
        "fastapi_offline",
        "httptools",
        "jsonschema_rs",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
    ),
    *("pydantic_settings", "re2", "redis", "sse_starlette", "starlette", "typing_extensions"),
    "uvicorn",
)
SPARK = ("numpy", "pandas", "prometheus_client", "py4j", "pyarrow", "pyspark", "re2", "redis")
MODULES = {
    "server": SERVER,
    "demo": (*SERVER, "psutil"),
    "spark": SPARK,
    "plan": (*SPARK, "matplotlib"),
}


def need(verb: str, extra: str) -> None:
    """Check that an extra is installed; nothing of it is imported.

    Raises:
        ConfigurationInvalid: says what to install.
    """
    missing = [name for name in MODULES[extra] if find_spec(name) is None]
    if missing:
        raise ConfigurationInvalid(
            f"`tidegate {verb}` needs {missing[0]}, which is not installed: "
            f'pip install "tidegate[{extra}]"'
        )
