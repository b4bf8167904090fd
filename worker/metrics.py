"""Defines the metrics that a worker counts. Call `metrics_folder.count_in()` before this module is imported."""

from prometheus_client import Counter, Gauge, Histogram

SWEEP_SECONDS = Histogram(
    "tilewatch_sweep_seconds",
    "From the start of a sweep's session on the GPU to the end of its measurement.",
    ("gpu_model",),
    buckets=(1, 2, 5, 10, 20, 60, 120, 300, 600, 1800),
)
COMPILE_SECONDS = Histogram(
    "tilewatch_compile_seconds",
    "One config through the tile compiler.",
    ("status",),
    buckets=(0.2, 0.5, 1, 2, 5, 10, 15, 30, 60),
)
COMPILE_CACHE = Counter(
    "tilewatch_compile_cache",
    "Configs of a submission that were compiled before (hit) or have to be compiled (miss).",
    ("outcome",),
)
MESSAGES_REFUSED = Counter(
    "tilewatch_messages_refused", "Messages in the broker that were none of ours and were dropped."
)
LAST_TICK = Gauge(
    "tilewatch_last_tick_timestamp_seconds",
    "When this worker last ran the task that beat sends every minute.",
    multiprocess_mode="mostrecent",
)
