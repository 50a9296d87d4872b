"""Judges the demonstration: one model at all kept peers, and the backdoor gone from it.

python judge.py FOLDER...    the kept peers' folders, after the recovery
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from pdlrecover.adversary import attack_success, build
from pdlrecover.learning import FlatModel, accuracy, load, models

WORKS, GONE = 0.9, 0.2
"""Before, the trigger gets its answer at least this often; afterwards, at most that often."""


def measure(path: Path) -> tuple[float, float]:
    """Return accuracy and the backdoor's success of a model, on held-out digits."""
    digits = load("digits")
    module = models.build("mlp-32", digits.shape, digits.classes, seed=0)
    module.load_state_dict(load_file(path))
    flat = FlatModel(module, digits.shape)
    right = accuracy(flat, flat.initial, digits.test_x, digits.test_y)
    attack = build("backdoor", digits)
    success = attack_success(flat, flat.initial, digits.test_x, digits.test_y, attack)
    return right, success or 0.0


def main() -> None:
    """Print what was found; exit with 1 if it is not as it should be."""
    torch.set_num_threads(1)
    folders = [Path(name) for name in sys.argv[1:]]
    digests = set()
    for folder in folders:
        (path,) = folder.glob("recovered-*.json")
        told = json.loads(path.read_text())
        found = hashlib.sha256(path.with_suffix(".safetensors").read_bytes()).hexdigest()
        if told["file_sha256"] != found:
            sys.exit(f"  {folder.name}: the model is not the one that {path.name} speaks of")
        digests.add((told["weights_sha256"], found))
        print(f"  {folder.name}: recovered model {found[:16]}")
    same = len(digests) == 1
    before = measure(folders[0] / "trained.safetensors")
    after = [measure(next(folder.glob("recovered-*.safetensors"))) for folder in folders]
    print(f"  before: accuracy {before[0]:.1%}, the backdoor works on {before[1]:.1%} of images")
    print(
        f"  after:  accuracy {after[0][0]:.1%}, the backdoor works on {after[0][1]:.1%} of images"
    )
    gone = before[1] >= WORKS and all(success <= GONE for _, success in after)
    print("  all kept peers hold the same model" if same else "  THE KEPT PEERS DIFFER")
    print("  the backdoor is gone" if gone else "  THE BACKDOOR IS NOT GONE, or never worked")
    sys.exit(0 if same and gone else 1)


if __name__ == "__main__":
    main()
