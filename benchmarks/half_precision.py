"""How far bfloat16 moves the embeddings of a vision transformer, and what its weights add to that.

Autocast multiplies in bfloat16 and adds blocks up in single precision; "bf16 throughout" keeps weights,
activations and sums in bfloat16. How much the two differ depends on the blocks' share of the sum, which
random weights of encoders with layer scales (1e-5 at the start of training) leave out almost entirely. So
the layer scales are set here. The third way keeps only the weights of products in bfloat16: what autocast
rounds at every call, rounded once.

Run: python -m benchmarks half_precision
"""

from __future__ import annotations

import copy
from typing import Any

NETWORK, IMAGES = "vit_small_patch16_224", 32


def main() -> None:
    """Print the table."""
    import torch
    from tests.conftest import guard_torchvision

    guard_torchvision()
    import timm

    device = "cuda" if torch.cuda.is_available() else "cpu"
    images = torch.randn(IMAGES, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(device)
    short = torch.bfloat16

    def autocast(network: Any) -> Any:
        with torch.autocast(device, dtype=short):
            return network(images).float()

    print(f"### bfloat16 against fp32: {NETWORK} on {device}, median distance over length\n")
    print("| layer scale | autocast | bf16 throughout | weights in bf16, autocast | as autocast |")
    print("|---:|---:|---:|---:|---|", flush=True)
    for scale in (1e-5, 0.01, 0.1, 1.0):
        torch.manual_seed(0)
        network = timm.create_model(NETWORK, init_values=scale, num_classes=0).eval().to(device)
        weights = copy.deepcopy(network)
        for layer in weights.modules():
            if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
                layer.to(short)
        with torch.inference_mode():
            exact = network(images)
            usual, kept = autocast(network), autocast(weights)
            whole = copy.deepcopy(network).to(short)(images.to(short)).float()
        moved = [
            float(((each - exact).norm(dim=1) / exact.norm(dim=1)).median())
            for each in (usual, whole, kept)
        ]
        same = "the same bytes" if torch.equal(usual, kept) else "other bytes"
        shown = " | ".join(f"{each:.1e}" for each in moved)
        print(f"| {scale:g} | {shown} | {same} |", flush=True)
    print()


if __name__ == "__main__":
    main()
