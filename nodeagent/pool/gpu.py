"""GPU slots: which devices a host has and which worker sees which.

A worker's devices are named in CUDA_VISIBLE_DEVICES; with none left it is empty, which hides all.
Called by pool. Devices come from the configuration, else from /dev: no driver library is needed.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia(\d+)")


def find_devices(device_dir: Path = Path("/dev")) -> tuple[str, ...]:
    """Indices of the NVIDIA devices of this host, as CUDA counts them."""
    found = (_DEVICE.fullmatch(path.name) for path in device_dir.glob("nvidia[0-9]*"))
    return tuple(str(number) for number in sorted(int(match[1]) for match in found if match))


def split(devices: Sequence[str], worker_count: int) -> list[tuple[str, ...]]:
    """Each device to one worker while there are enough workers, else several to each.

    With more workers than devices they take turns: a device is then shared.
    """
    if not devices:
        return [()] * worker_count
    if worker_count >= len(devices):
        return [(devices[number % len(devices)],) for number in range(worker_count)]
    return [tuple(devices[number::worker_count]) for number in range(worker_count)]


def visible(devices: Sequence[str], *, has_gpus: bool) -> Mapping[str, str]:
    """What a command's environment says; nothing at all on a host without GPUs."""
    return {VISIBLE_DEVICES: ",".join(devices)} if has_gpus else {}
