"""Private mount namespaces, which imitate the protection of systemd units."""

import os
import shutil
import subprocess

import pytest

# For a shell: make everything read-only but the folder $1, as ProtectSystem=strict with ReadWritePaths=$1.
READ_ONLY = """
read_only_but() {
    for place in $(awk '{print $2}' /proc/mounts | sort -r); do
        case "$place" in
            "$1"|/proc*|/sys*|/dev*) ;;
            *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;;
        esac
    done
    if touch /tmp/.writable 2>/dev/null; then echo "SKIP: the system cannot be made read-only"; exit 0; fi
}
"""


def require_namespaces(*commands: str) -> None:
    """Skip the test where root cannot open a private mount namespace, or a command is missing."""
    if os.name != "posix" or os.geteuid() != 0 or not all(map(shutil.which, ("unshare", *commands))):
        pytest.skip(f"a private mount namespace requires Linux, root, {', '.join(('unshare', *commands))}")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no private mount namespace")
