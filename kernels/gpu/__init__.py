"""Works on one GPU: arrays, launches, timing, telemetry, health. All modules but health/illness.py and
health/watcher.py run in a child process. Nothing here decides which config is tried next."""
