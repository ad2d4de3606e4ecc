"""A spool lies on a disk of this machine; the mount table says whether a folder does."""

from pathlib import Path

import pytest

from rankscope.spool import SpoolError, default_bytes, file_system_of, is_local
from rankscope.spool._writer import refuse_elsewhere

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / /data rw - nfs4 filer:/data rw,vers=4.2
31 22 0:41 / /scratch rw - lustre mgs@tcp:/scratch rw
32 31 259:1 / /scratch/local rw - xfs /dev/nvme0n1 rw
33 22 0:42 / /mnt/with\040space rw - fuse.sshfs host: rw
34 22 0:43 / /tmp rw - tmpfs tmpfs rw
35 34 0:44 / /tmp rw master:3 propagate_from:2 - gpfs gpfs0 rw
36 22 0:45 / /overlay rw - fuse.fuse-overlayfs fuse-overlayfs rw
37 22 0:46 / /new rw - bcachefs /dev/sdb rw
a line that is none
"""

CASES = {
    "/data/ann/spool": ("nfs4", "/data"),
    "/scratch/run": ("lustre", "/scratch"),
    "/scratch/local/run": ("xfs", "/scratch/local"),
    "/mnt/with space/deep/er": ("fuse.sshfs", "/mnt/with space"),
    "/tmp/rankscope": ("gpfs", "/tmp"),
    "/tmpfoo": ("ext4", "/"),
    "/overlay/x": ("fuse.fuse-overlayfs", "/overlay"),
    "/new": ("bcachefs", "/new"),
}
LOCAL = {"xfs", "ext4", "bcachefs", "fuse.fuse-overlayfs"}


@pytest.mark.parametrize(("path", "expected"), CASES.items())
def test_the_mount_table_says_what_a_path_lies_on(path: str, expected: tuple[str, str]) -> None:
    assert file_system_of(Path(path), MOUNTS) == expected


@pytest.mark.parametrize(("path", "expected"), CASES.items())
def test_a_root_over_a_network_is_refused_by_name(path: str, expected: tuple[str, str]) -> None:
    if expected[0] in LOCAL:
        refuse_elsewhere(Path(path), MOUNTS)
    else:
        with pytest.raises(SpoolError, match=f"{expected[0]} .*{expected[1]}.*RANKSCOPE_SPOOL_ANY_FS=1"):
            refuse_elsewhere(Path(path), MOUNTS)


@pytest.mark.parametrize("kind", ["nfs", "cifs", "fuse.s3fs", "ceph", "beegfs", "glusterfs", "9p"])
def test_file_systems_over_a_network_are_known(kind: str) -> None:
    assert not is_local(kind)


def test_a_machine_that_says_nothing_of_its_mounts_is_believed() -> None:
    refuse_elsewhere(Path("/anywhere"), "")


def test_the_bound_without_a_setting_is_a_fifth_of_what_is_free_and_at_most_8_gib(tmp_path: Path) -> None:
    assert 0 < default_bytes(tmp_path / "not" / "there") <= 8 * 2**30
