"""The night in Airflow 3: put this file into the folder of DAGs.

What does not change by itself is not tried again: a wrong configuration (exit code 2), bad input
(3), a refusal by a gate (4). Anything else is, and resumes from the finished blocks.
"""

import subprocess
from datetime import datetime, timedelta

from airflow.exceptions import AirflowFailException
from airflow.sdk import dag, task

COMMAND = ["figrl", "reindex", "/srv/figrl/nightly.yaml", "--cluster", "/srv/figrl/cluster.yaml"]
FINAL = (2, 3, 4)


@dag(schedule="0 3 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def figrl_nightly():
    """Bring the published vectors up to date."""

    @task(retries=2, retry_delay=timedelta(minutes=5))
    def reindex() -> None:
        code = subprocess.run(COMMAND, check=False).returncode
        if code in FINAL:
            raise AirflowFailException(f"figrl ended with exit code {code}: see its last lines.")
        if code:
            raise RuntimeError(f"figrl ended with exit code {code}.")

    reindex()


figrl_nightly()
