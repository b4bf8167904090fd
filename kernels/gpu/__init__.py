"""Works on one GPU: arrays, launches, timing, telemetry, health. All modules except health/illness.py and
health/watcher.py run in a child process. This folder does not decide which config is tried next."""
