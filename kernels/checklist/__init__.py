"""Answers the optimisation guide's checklist for one config. Reads source, remarks and cubin; runs nothing on a GPU."""
