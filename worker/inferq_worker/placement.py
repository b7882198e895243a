"""What each of several processes gets of the machine: a device, and its share of the cores."""

from collections.abc import Mapping, Sequence

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environments(
    processes: int, cores: int, devices: Sequence[str], present: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return the variables to add for each child.

    Devices go round; each child sees its own as the only one. Numeric libraries start a thread
    per core in every process unless told otherwise, so N processes would fight with N times as
    many threads as there are cores. Where one of these variables is set already none is added: it
    says what the user wants, and a library's own variable would win over it.
    """
    shared: dict[str, str] = {}
    if not any(name in present for name in _THREAD_VARIABLES):
        shared = dict.fromkeys(_THREAD_VARIABLES, str(max(1, cores // processes)))
    if not devices:
        return [dict(shared) for _ in range(processes)]
    return [
        {**shared, "CUDA_VISIBLE_DEVICES": devices[place % len(devices)]}
        for place in range(processes)
    ]
