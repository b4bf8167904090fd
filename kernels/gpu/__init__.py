"""Works on one GPU: arrays, launches, timing, telemetry, health. All modules run in a child process, except
health/illness.py and health/watcher.py. This folder does not decide which config is tried next."""
