"""``python -m figrl_jobs``: the command ``figrl``, without the installed script."""

from figrl_jobs.main import run

run()
