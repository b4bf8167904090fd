"""The queue: test_relations.py, test_replay_job.py and test_unjudged_night.py have what its modules do together."""
