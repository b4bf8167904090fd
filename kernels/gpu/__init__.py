"""Works on one GPU: arrays, launches, timing, telemetry, canaries. All but health.py and illness.py run in
a child process; nothing here decides what to try next.
"""
