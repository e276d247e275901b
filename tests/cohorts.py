"""A cohort made by hand, for the tests of laws that read one."""

from pathlib import Path

from seedbed.laws.cohort import Cohort, Component, Curve, Member

DEPTH = (0.0, 0.25, 1.0)


def by_hand(rms: dict[str, tuple[float, ...]]) -> Cohort:
    """RMS curves of components at DEPTH; all ranks are 1."""
    ones = Curve(mean=(1.0, 1.0, 1.0), std=None)
    return Cohort(
        command="by hand",
        version="0",
        note="",
        depth=DEPTH,
        members=(Member(name="one", layers=5, width=8, parameters=64, sha256=("0",), left_out=()),),
        components={
            name: Component(checkpoints=1, rms=Curve(mean=mean, std=None), entropy_rank=ones, rank_share=ones)
            for name, mean in rms.items()
        },
    )


def write(path: Path, rms: dict[str, tuple[float, ...]]) -> str:
    path.write_text(by_hand(rms).to_json())
    return str(path)
