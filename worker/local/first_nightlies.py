"""Submits the first nightlies of `tilewatch up`, in a process without its secrets."""

from tilewatch import errors, processes


def main() -> None:
    from tilewatch.worker.settings import Settings
    from tilewatch.worker.submitting import schedule

    processes.forbid_inspection()
    try:
        sentences = schedule.submit(Settings.load())
    except Exception as error:
        sentence = errors.sentence(error)
        if sentence is None:
            raise
        sentences = [f"tilewatch: no nightly was submitted: {sentence}"]
    print(*(sentences or ["no repository is watched yet: `tilewatch watch add URL` (or a folder) adds one"]), sep="\n")


if __name__ == "__main__":
    main()
