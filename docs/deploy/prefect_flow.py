"""The night in Prefect 3: ``python prefect_flow.py`` serves it.

What does not change by itself is not tried again: a wrong configuration (exit code 2), bad input
(3), a refusal by a gate (4). Anything else is, and resumes from the finished blocks.
"""

import subprocess

from prefect import flow, task

COMMAND = ["figrl", "reindex", "/srv/figrl/nightly.yaml", "--cluster", "/srv/figrl/cluster.yaml"]
FINAL = (2, 3, 4)
MINUTES_BETWEEN = 5


def may_end_better(_task, _run, state) -> bool:
    """Whether another try may end otherwise."""
    try:
        state.result()
    except subprocess.CalledProcessError as error:
        return error.returncode not in FINAL
    except Exception:
        return True
    return False


@task(retries=2, retry_delay_seconds=60 * MINUTES_BETWEEN, retry_condition_fn=may_end_better)
def reindex() -> None:
    """Run the command; it fails with its exit code."""
    subprocess.run(COMMAND, check=True)


@flow(name="figrl-nightly")
def figrl_nightly() -> None:
    """Bring the published vectors up to date."""
    reindex()


if __name__ == "__main__":
    figrl_nightly.serve(name="figrl-nightly", cron="0 3 * * *")
