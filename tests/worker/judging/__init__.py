"""The judge with its database: test_judge.py, test_bisection.py and test_conclude.py play whole nights."""
