"""Node agents as jobs of a batch system, as many as the backlog needs: `mitosis allocate`.

`plan` thinks (no I/O), `slurm` speaks to the batch system, `job_script` is what a job runs, `loop`
joins them. Documented in docs/scaling.md.
"""
