"""Where figures come from: without it no figure says anything."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from bench.stage import connected, private_server

Facts = dict[str, str | int]


def facts() -> Facts:
    """Return cores, CPU, system, and the versions of server and client libraries by name."""
    with private_server() as url, connected(url) as client:
        server = client.info("server")
    # Valkey tells a Redis version too, for clients that look for nothing else.
    kind = "Valkey" if "valkey_version" in server else "Redis"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "server": f"{kind} {server[f'{kind.lower()}_version']}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("inferq", "redis", "hiredis", "numpy", "pydantic")},
    }


def line(known: Facts) -> str:
    """Return the facts as one line."""
    libraries = ", ".join(f"{name} {known[name]}" for name in ("redis", "hiredis", "numpy"))
    return (
        f"{known['cores']} cores, {known['cpu']}, {known['system']}; {known['server']}; "
        f"Python {known['python']}, {libraries}; inferq {known['inferq']}"
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (text.partition(":")[2].strip() for text in lines if text.startswith("model name"))
    return next(names, platform.processor() or "unknown CPU")
