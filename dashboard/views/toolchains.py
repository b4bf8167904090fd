"""Shows reports on toolchains, which answer whether a newer tile compiler is safe to take."""

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import toolchains
from tilewatch.dashboard.widgets import page_head

ABOUT = (
    "Toolchains that compiled and timed the same kernels: whether a newer one is safe to take, which kernels it "
    "makes slower, and by how much."
)

page_head.show("Toolchains", ABOUT)
toolchains.show(reads.database_url())
