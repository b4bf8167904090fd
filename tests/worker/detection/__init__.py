"""The detector: test_detector.py has made histories, test_thresholds.py each number at its boundary, test_any_times.py
drawn ones, and test_played_worlds.py holds every question and answer of some hundred nights."""
