"""`make chaos`: faults for an hour (CHAOS_MINUTES shortens it), then one line with the verdict."""

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Campaign, Progress


def main() -> int:
    minutes = float(os.environ.get("CHAOS_MINUTES", "60"))
    seed = int(os.environ.get("CHAOS_SEED", str(random.randrange(1_000_000))))
    print(f"{minutes:g} minutes of faults, seed {seed} (CHAOS_SEED repeats it)", flush=True)
    root = Path(tempfile.mkdtemp(prefix="mitosis-chaos-"))
    root.chmod(0o711)
    open_dir = root / "open"
    open_dir.mkdir()
    open_dir.chmod(0o777)
    campaign = Campaign(root, open_dir, seed=seed, say=lambda line: print(line, flush=True))

    def is_over(progress: Progress) -> bool:
        return progress.seconds >= minutes * 60

    verdict = campaign.run(is_over)
    print("\n".join(verdict.lines()))
    if verdict.is_clean:
        shutil.rmtree(root, ignore_errors=True)
    else:
        print(f"logs and history are in {root}")
    print(verdict)
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
