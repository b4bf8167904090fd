"""The judge step: a night, its questions, causes and regressions. It reads and writes the database and queues jobs, and
never touches a GPU.
"""
